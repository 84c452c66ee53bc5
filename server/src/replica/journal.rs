//! The journal that `--journal` names, and its file of settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use plinth_api::{decode_config_part, parse_config, ConfigDecodeError, Strictness};
use plinth_codec::pem::PemError;
use plinth_journal::record::{self, ClusterId};
use plinth_journal::{Founding, Journal, Tls};
use plinth_journal_etcd::{EtcdJournal, EtcdOptions};
use plinth_journal_kafka::{KafkaJournal, KafkaOptions, SaslMechanism};
use plinth_pki::{parse_certificates, parse_private_key};
use rustls::server::ParsedCertificate;
use rustls::RootCertStore;
use serde::Deserialize;

/// The flags of a replica.
#[derive(Clone, Debug, Default, Args)]
pub struct JournalOptions {
    /// Journal that the replicas of a cluster share: etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX
    /// or kafka://HOST:PORT,HOST:PORT,HOST:PORT/TOPIC
    #[arg(long, value_name = "URL")]
    pub journal: Option<String>,
    /// File with TLS and credentials for the journal, YAML or JSON
    #[arg(long, value_name = "FILE", requires = "journal")]
    pub journal_config: Option<PathBuf>,
}

/// Connects to the journal of a cluster, and founds it if that is allowed. Blocks.
pub type Connect = Box<dyn FnOnce(ClusterId, Founding) -> plinth_journal::Result<Arc<dyn Journal>> + Send>;

/// The flags do not name a journal.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum JournalOptionsError {
    /// The URL is of no known kind of journal.
    #[error(
        "--journal: {url:?} is no URL of a journal, expected etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX or \
         kafka://HOST:PORT,HOST:PORT,HOST:PORT/TOPIC"
    )]
    Kind {
        /// The URL, without what follows its scheme.
        url: String,
    },
    /// The URL is malformed.
    #[error("--journal: {0}")]
    Etcd(#[from] plinth_journal_etcd::OptionsError),
    /// The URL is malformed.
    #[error("--journal: {0}")]
    Kafka(#[from] plinth_journal_kafka::OptionsError),
    /// A file cannot be read.
    #[error("--journal-config: cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file of settings cannot be decoded.
    #[error("--journal-config: {path}: {source}")]
    Decode {
        path: PathBuf,
        /// The error, with its field.
        source: ConfigDecodeError,
    },
    /// Settings contradict each other.
    #[error("--journal-config: {path}: {problem}")]
    Contradiction {
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
}

/// The file of settings. Paths are relative to its directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JournalConfig {
    certificate_authority_file: Option<PathBuf>,
    client_certificate_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    sasl_mechanism: Option<String>,
    max_record_bytes: Option<usize>,
}

/// What the file and the files that it names hold.
#[derive(Debug, Default)]
struct Settings {
    tls: Option<Tls>,
    /// Name and password.
    user: Option<(String, String)>,
    sasl_mechanism: Option<String>,
    max_record_bytes: Option<usize>,
}

impl JournalOptions {
    /// How the journal is connected to; none for a single store. Reads the files that the options name.
    ///
    /// # Errors
    /// See [`JournalOptionsError`]; no connection is made.
    pub fn connector(&self) -> Result<Option<Connect>, JournalOptionsError> {
        let Some(url) = &self.journal else { return Ok(None) };
        let path = self.journal_config.as_deref();
        if url.starts_with("etcd://") {
            let mut options = EtcdOptions::parse(url)?;
            if let Some(path) = path {
                configure_etcd(&mut options, read_settings(path)?, path)?;
            }
            return Ok(Some(Box::new(move |cluster, founding| {
                Ok(Arc::new(EtcdJournal::connect(&options, cluster, founding)?))
            })));
        }
        if url.starts_with("kafka://") {
            let mut options = KafkaOptions::parse(url)?;
            if let Some(path) = path {
                configure_kafka(&mut options, read_settings(path)?, path)?;
            }
            return Ok(Some(Box::new(move |cluster, founding| {
                Ok(Arc::new(KafkaJournal::connect(&options, cluster, founding)?))
            })));
        }
        // Another scheme may carry a password behind it.
        let url = url.split("//").next().unwrap_or_default().chars().take(32).collect();
        Err(JournalOptionsError::Kind { url })
    }
}

fn contradiction(path: &Path, problem: &'static str) -> JournalOptionsError {
    JournalOptionsError::Contradiction { path: path.to_owned(), problem }
}

fn configure_etcd(
    options: &mut EtcdOptions,
    settings: Settings,
    path: &Path,
) -> Result<(), JournalOptionsError> {
    if settings.sasl_mechanism.is_some() {
        return Err(contradiction(path, "saslMechanism is of a journal in Kafka, and this one is in etcd"));
    }
    options.tls = settings.tls;
    options.user = settings.user.map(|(name, password)| plinth_journal_etcd::User { name, password });
    if let Some(bytes) = settings.max_record_bytes {
        options.max_record_bytes = bytes;
    }
    Ok(())
}

fn configure_kafka(
    options: &mut KafkaOptions,
    settings: Settings,
    path: &Path,
) -> Result<(), JournalOptionsError> {
    let mechanism = match &settings.sasl_mechanism {
        None => None,
        Some(name) => {
            let known = SaslMechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name);
            let problem = "saslMechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
            Some(known.ok_or_else(|| contradiction(path, problem))?)
        }
    };
    options.tls = settings.tls;
    options.user = match (mechanism, settings.user) {
        (Some(mechanism), Some((name, password))) => {
            Some(plinth_journal_kafka::User { mechanism, name, password })
        }
        (None, None) => None,
        _ => {
            let problem = "user, passwordFile and saslMechanism are given together or not at all";
            return Err(contradiction(path, problem));
        }
    };
    if let Some(bytes) = settings.max_record_bytes {
        options.max_record_bytes = bytes;
    }
    Ok(())
}

/// What is wrong with the files of TLS. With an authority without a certificate every member would be one
/// that is not trusted, and is waited for.
fn problem_of_tls(authority: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Option<&'static str> {
    // A system's bundle may have some that cannot be used.
    let is_authority = |text| {
        let (usable, _) = RootCertStore::empty().add_parsable_certificates(parse_certificates(text)?);
        Ok::<_, PemError>(usable > 0)
    };
    let is_chain = |text| {
        let chain = parse_certificates(text)?;
        Ok::<_, PemError>(
            !chain.is_empty() && chain.iter().all(|der| ParsedCertificate::try_from(der).is_ok()),
        )
    };
    if authority.is_some_and(|text| !is_authority(text).unwrap_or(false)) {
        return Some("no certificate in PEM in certificateAuthorityFile");
    }
    let (certificate, key) = identity?;
    if !is_chain(certificate).unwrap_or(false) {
        return Some("no certificate in PEM in clientCertificateFile");
    }
    parse_private_key(key).err().map(|_| "no private key in PEM that can be used in clientKeyFile")
}

/// Reads the file of settings, which is the same for every kind of journal.
fn read_settings(path: &Path) -> Result<Settings, JournalOptionsError> {
    let decode = |source| JournalOptionsError::Decode { path: path.to_owned(), source };
    let tree = parse_config(&read(path)?, Strictness::Strict).map_err(decode)?;
    let config: JournalConfig = decode_config_part(&tree, Strictness::Strict).map_err(decode)?;
    let beside = |file: PathBuf| read(&path.parent().unwrap_or(Path::new(".")).join(file));
    let identity = match (config.client_certificate_file, config.client_key_file) {
        (Some(certificate), Some(key)) => Some((beside(certificate)?, beside(key)?)),
        (None, None) => None,
        _ => {
            let problem = "clientCertificateFile and clientKeyFile are given together or not at all";
            return Err(contradiction(path, problem));
        }
    };
    let certificate_authority = config.certificate_authority_file.map(beside).transpose()?;
    if identity.is_some() && certificate_authority.is_none() {
        return Err(contradiction(path, "clientCertificateFile needs certificateAuthorityFile"));
    }
    let key_pair = identity.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
    if let Some(problem) = problem_of_tls(certificate_authority.as_deref(), key_pair) {
        return Err(contradiction(path, problem));
    }
    let tls = certificate_authority.map(|certificate_authority| Tls { certificate_authority, identity });
    let user = match (config.user, config.password_file) {
        (Some(name), Some(file)) => {
            let password = String::from_utf8(beside(file)?);
            let password = password.map_err(|_| contradiction(path, "the password is not UTF-8"))?;
            Some((name, password.trim_end_matches(['\r', '\n']).to_owned()))
        }
        (None, None) => None,
        _ => return Err(contradiction(path, "user and passwordFile are given together or not at all")),
    };
    let sasl_mechanism = config.sasl_mechanism;
    // None is larger.
    let max_record_bytes = config.max_record_bytes.map(|bytes| bytes.min(record::MAX_BYTES));
    if max_record_bytes.is_some_and(|bytes| bytes < record::LEAST_LIMIT) {
        return Err(contradiction(path, "maxRecordBytes is 65536 at least"));
    }
    Ok(Settings { tls, user, sasl_mechanism, max_record_bytes })
}

fn read(path: &Path) -> Result<Vec<u8>, JournalOptionsError> {
    std::fs::read(path).map_err(|source| JournalOptionsError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: JournalOptions) -> String {
        options.connector().err().expect("a refusal").to_string()
    }

    #[test]
    fn flags_that_name_no_journal_are_refused_in_words() {
        let with = |url: &str| JournalOptions { journal: Some(url.to_owned()), journal_config: None };
        assert!(JournalOptions::default().connector().unwrap().is_none());
        assert!(with("etcd://h:1,h:2/p").connector().unwrap().is_some());
        assert!(with("kafka://h:1,h:2/t").connector().unwrap().is_some());
        let text = refusal(with("nats://user:secret@h/x"));
        assert!(text.contains("nats:") && !text.contains("secret"), "{text}");
        for url in ["etcd://user:secret@h:1/p", "kafka://user:secret@h:1/t"] {
            let text = refusal(with(url));
            assert!(text.contains("@h:1/") && !text.contains("secret"), "{text}");
        }
        assert!(refusal(with("etcd://h:1")).contains("names no prefix"));
        assert!(refusal(with("kafka://h:1")).contains("names no topic"));
    }

    #[test]
    fn the_file_of_settings_is_read_strictly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.yaml");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut options = EtcdOptions::parse("etcd://h:1/p").unwrap();
            let configured = read_settings(&path).and_then(|read| configure_etcd(&mut options, read, &path));
            configured.map(|()| options).map_err(|error| error.to_string())
        };
        std::fs::write(dir.path().join("password"), "secret\n").unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        std::fs::write(dir.path().join("ca.crt"), &authority).unwrap();
        std::fs::write(dir.path().join("client.key"), key.serialize_pem()).unwrap();
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(dir.path().join("damaged"), damaged).unwrap();
        let options = with(
            "certificateAuthorityFile: ca.crt\nuser: replica\npasswordFile: password\nmaxRecordBytes: 65536",
        );
        let options = options.unwrap();
        assert_eq!(with("maxRecordBytes: 9223372036854775807").unwrap().max_record_bytes, record::MAX_BYTES);
        assert_eq!(options.user.unwrap().password, "secret");
        assert_eq!(options.tls.unwrap().certificate_authority, authority.as_bytes());
        assert_eq!(options.max_record_bytes, 65536);
        for (text, expected) in [
            ("users: replica", "unknown field \"users\""),
            ("user: replica", "given together"),
            ("clientKeyFile: password", "given together"),
            ("clientKeyFile: password\nclientCertificateFile: ca.crt", "needs certificateAuthorityFile"),
            ("certificateAuthorityFile: absent", "absent"),
            ("certificateAuthorityFile: password", "certificateAuthorityFile"),
            ("certificateAuthorityFile: damaged", "certificateAuthorityFile"),
            (
                "certificateAuthorityFile: ca.crt\nclientCertificateFile: client.key\n\
                 clientKeyFile: client.key",
                "in clientCertificateFile",
            ),
            (
                "certificateAuthorityFile: ca.crt\nclientCertificateFile: ca.crt\nclientKeyFile: password",
                "in clientKeyFile",
            ),
            ("maxRecordBytes: many", "maxRecordBytes"),
            ("maxRecordBytes: 65535", "65536 at least"),
            ("saslMechanism: PLAIN", "this one is in etcd"),
        ] {
            let refusal = with(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_user_of_kafka_has_a_mechanism() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.yaml");
        std::fs::write(dir.path().join("password"), "secret\n").unwrap();
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut options = KafkaOptions::parse("kafka://h:1/t").unwrap();
            let configured = read_settings(&path).and_then(|read| configure_kafka(&mut options, read, &path));
            configured.map(|()| options).map_err(|error| error.to_string())
        };
        let options = with("user: replica\npasswordFile: password\nsaslMechanism: SCRAM-SHA-256").unwrap();
        let user = options.user.unwrap();
        assert_eq!((user.mechanism, user.password.as_str()), (SaslMechanism::ScramSha256, "secret"));
        assert!(with("maxRecordBytes: 65536").unwrap().user.is_none());
        for (text, expected) in [
            ("user: replica\npasswordFile: password", "saslMechanism are given together"),
            ("saslMechanism: PLAIN", "given together"),
            ("user: replica\npasswordFile: password\nsaslMechanism: GSSAPI", "SCRAM-SHA-512"),
        ] {
            let refusal = with(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }
}
