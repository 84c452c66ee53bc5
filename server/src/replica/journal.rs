//! The journal that `--journal` names, and its file of settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use plinth_api::config_file::{self, DecodeError, Strictness};
use plinth_journal::record::ClusterId;
use plinth_journal::Journal;
use plinth_journal_etcd::{EtcdJournal, EtcdOptions, OptionsError, Tls, User};
use serde::Deserialize;

/// The flags of a replica.
#[derive(Clone, Debug, Default, Args)]
pub struct JournalOptions {
    /// Serve as one of several replicas that share this journal: etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX
    #[arg(long, value_name = "URL")]
    pub journal: Option<String>,
    /// File with TLS and credentials for the journal, YAML or JSON
    #[arg(long, value_name = "FILE", requires = "journal")]
    pub journal_config: Option<PathBuf>,
}

/// Connects to the journal of a cluster. Blocks.
pub type Connect = Box<dyn FnOnce(ClusterId) -> plinth_journal::Result<Arc<dyn Journal>> + Send>;

/// The flags do not name a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalOptionsError {
    /// The URL is of no known kind of journal.
    #[error(
        "--journal: {url:?} is no URL of a journal, expected etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX"
    )]
    Kind {
        /// The URL, without what follows its scheme.
        url: String,
    },
    /// The URL is malformed.
    #[error("--journal: {0}")]
    Etcd(#[from] OptionsError),
    /// A file cannot be read.
    #[error("--journal-config: cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file of settings cannot be decoded.
    #[error("--journal-config: {path}: {source}")]
    Decode {
        /// The file.
        path: PathBuf,
        /// The error, with its field.
        source: DecodeError,
    },
    /// Settings contradict each other.
    #[error("--journal-config: {path}: {problem}")]
    Contradiction {
        /// The file.
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
    max_record_bytes: Option<usize>,
}

impl JournalOptions {
    /// How the journal is connected to; none for a single store. Reads the files that the options name.
    ///
    /// # Errors
    /// See [`JournalOptionsError`]; no connection is made.
    pub fn connector(&self) -> Result<Option<Connect>, JournalOptionsError> {
        let Some(url) = &self.journal else { return Ok(None) };
        if !url.starts_with("etcd://") {
            // Another scheme may carry a password behind it.
            let url = url.split("//").next().unwrap_or_default().chars().take(32).collect();
            return Err(JournalOptionsError::Kind { url });
        }
        let mut options = EtcdOptions::parse(url)?;
        if let Some(path) = &self.journal_config {
            configure(&mut options, path)?;
        }
        Ok(Some(Box::new(move |cluster| Ok(Arc::new(EtcdJournal::connect(&options, cluster)?)))))
    }
}

fn configure(options: &mut EtcdOptions, path: &Path) -> Result<(), JournalOptionsError> {
    let decode = |source| JournalOptionsError::Decode { path: path.to_owned(), source };
    let tree = config_file::parse(&read(path)?, Strictness::Strict).map_err(decode)?;
    let config: JournalConfig = config_file::decode_part(&tree, Strictness::Strict).map_err(decode)?;
    let beside = |file: PathBuf| read(&path.parent().unwrap_or(Path::new(".")).join(file));
    let contradiction = |problem| JournalOptionsError::Contradiction { path: path.to_owned(), problem };
    let identity = match (config.client_certificate_file, config.client_key_file) {
        (Some(certificate), Some(key)) => Some((beside(certificate)?, beside(key)?)),
        (None, None) => None,
        _ => {
            return Err(contradiction(
                "clientCertificateFile and clientKeyFile are given together or not at all",
            ))
        }
    };
    options.tls = match config.certificate_authority_file {
        Some(file) => Some(Tls { certificate_authority: beside(file)?, identity }),
        None if identity.is_some() => {
            return Err(contradiction("clientCertificateFile needs certificateAuthorityFile"));
        }
        None => None,
    };
    options.user = match (config.user, config.password_file) {
        (Some(name), Some(file)) => {
            let password = String::from_utf8(beside(file)?);
            let password = password.map_err(|_| contradiction("the password is not UTF-8"))?;
            Some(User { name, password: password.trim_end_matches(['\r', '\n']).to_owned() })
        }
        (None, None) => None,
        _ => return Err(contradiction("user and passwordFile are given together or not at all")),
    };
    if let Some(bytes) = config.max_record_bytes {
        options.max_record_bytes = bytes;
    }
    Ok(())
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
        let text = refusal(with("nats://user:secret@h/x"));
        assert!(text.contains("nats:") && !text.contains("secret"), "{text}");
        assert!(refusal(with("etcd://h:1")).contains("names no prefix"));
    }

    #[test]
    fn the_file_of_settings_is_read_strictly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.yaml");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut options = EtcdOptions::parse("etcd://h:1/p").unwrap();
            configure(&mut options, &path).map(|()| options).map_err(|error| error.to_string())
        };
        std::fs::write(dir.path().join("password"), "secret\n").unwrap();
        std::fs::write(dir.path().join("ca.crt"), "PEM").unwrap();
        let options = with(
            "certificateAuthorityFile: ca.crt\nuser: replica\npasswordFile: password\nmaxRecordBytes: 65536",
        );
        let options = options.unwrap();
        assert_eq!(options.user.unwrap().password, "secret");
        assert_eq!(options.tls.unwrap().certificate_authority, b"PEM");
        assert_eq!(options.max_record_bytes, 65536);
        for (text, expected) in [
            ("users: replica", "unknown field \"users\""),
            ("user: replica", "given together"),
            ("clientKeyFile: password", "given together"),
            ("clientKeyFile: password\nclientCertificateFile: ca.crt", "needs certificateAuthorityFile"),
            ("certificateAuthorityFile: absent", "absent"),
            ("maxRecordBytes: many", "maxRecordBytes"),
        ] {
            let refusal = with(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }
}
