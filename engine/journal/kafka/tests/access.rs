//! How Kafka is reached: TLS, users and their rights. With real brokers of Kafka.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

#[path = "../../tests/authority/mod.rs"]
mod authority;
mod common;

use std::path::Path;

use authority::Authority;
use common::{is_there, Brokers, CLUSTER};
use plinth_journal::{Error, Founding, Journal, Position};
use plinth_journal_kafka::{KafkaJournal, KafkaOptions, SaslMechanism, Tls, User};

/// What a client needs that the authority has signed.
fn client(authority: &Authority) -> Tls {
    let (certificate, key) = authority.sign("client");
    Tls {
        certificate_authority: authority.certificate.clone().into_bytes(),
        identity: Some((certificate.into_bytes(), key.into_bytes())),
    }
}

/// Settings of a broker that serves TLS, whose files are put into a directory.
fn tls_settings(dir: &Path, authority: &Authority, asks_for_certificates: bool) -> String {
    let (certificate, key) = authority.sign("broker");
    let store = dir.join("broker.pem");
    std::fs::write(&store, format!("{key}{certificate}")).unwrap();
    let trusted = dir.join("ca.pem");
    std::fs::write(&trusted, &authority.certificate).unwrap();
    let client_auth = if asks_for_certificates { "required" } else { "none" };
    format!(
        "listener.name.client.ssl.keystore.type=PEM\nlistener.name.client.ssl.keystore.location={}\n\
         listener.name.client.ssl.truststore.type=PEM\nlistener.name.client.ssl.truststore.location={}\n\
         listener.name.client.ssl.client.auth={client_auth}\n",
        store.display(),
        trusted.display()
    )
}

/// One broker with further settings, whose clients speak a protocol.
fn broker(dir: tempfile::TempDir, protocol: &str, settings: &str, format: &str) -> Brokers {
    let path = dir.path().join("properties");
    std::fs::write(&path, settings).unwrap();
    let mut variables = vec![
        ("PLINTH_KAFKA_PROTOCOL", protocol.to_owned()),
        ("PLINTH_KAFKA_PROPERTIES", path.display().to_string()),
    ];
    if !format.is_empty() {
        variables.push(("PLINTH_KAFKA_FORMAT", format.to_owned()));
    }
    Brokers::start_with(1, dir, variables)
}

/// What a journal says about a Kafka that it cannot use: when it is connected, or at the first call.
fn complaint(options: &KafkaOptions) -> Error {
    match KafkaJournal::connect(options, CLUSTER, Founding::Allowed) {
        Ok(journal) => journal.end().unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    if !is_there() {
        return;
    }
    let (authority, untrusted) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let settings = tls_settings(dir.path(), &authority, true);
    let brokers = broker(dir, "SSL", &settings, "");
    let with = |tls| KafkaOptions { tls, ..brokers.options() };
    let trusted = client(&authority);
    let journal = brokers.connect_with(&with(Some(trusted.clone())));
    assert_eq!(Brokers::append(&journal, "over TLS"), Position::new(2));
    let mut reader = journal.read(Position::new(2)).unwrap();
    assert_eq!(reader.next(std::time::Duration::from_secs(5)).unwrap().unwrap().bytes, "over TLS");

    let of_another =
        Tls { certificate_authority: client(&untrusted).certificate_authority, ..trusted.clone() };
    let error = complaint(&with(Some(of_another)));
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    // The broker's refusal comes after the handshake.
    complaint(&with(Some(Tls { identity: None, ..trusted.clone() })));
    complaint(&with(Some(Tls { identity: client(&untrusted).identity, ..trusted })));
    let error = complaint(&with(None));
    assert!(error.to_string().contains("certificateAuthorityFile"), "{error}");
    for garbage in [&b"no PEM"[..], b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let garbage = Tls { certificate_authority: garbage.to_vec(), identity: None };
        assert!(matches!(complaint(&with(Some(garbage))), Error::Refused { .. }));
    }
    assert_eq!(journal.end(), Ok(Position::new(2)));
}

#[test]
fn a_user_needs_its_password_and_rights_to_the_topic() {
    if !is_there() {
        return;
    }
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 user_replica=\"secret of replica\";";
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let settings = tls_settings(dir.path(), &authority, false)
        + &format!(
            "listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.client.plain.sasl.jaas.config={plain}\n\
             listener.name.client.scram-sha-256.sasl.jaas.config={scram}\n\
             listener.name.client.scram-sha-512.sasl.jaas.config={scram}\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS;User:replica\n"
        );
    let format = "--add-scram SCRAM-SHA-256=[name=replica,password=secret-of-replica] \
                  --add-scram SCRAM-SHA-512=[name=replica,password=secret-of-replica] \
                  --add-scram SCRAM-SHA-512=[name=other,password=secret-of-other]";
    let brokers = broker(dir, "SASL_SSL", &settings, format);
    let tls = Some(Tls { identity: None, ..client(&authority) });
    let with = |user: Option<(SaslMechanism, &str, &str)>| {
        let user = user.map(|(mechanism, name, password)| User {
            mechanism,
            name: name.to_owned(),
            password: password.to_owned(),
        });
        KafkaOptions { tls: tls.clone(), user, ..brokers.options() }
    };
    use SaslMechanism::{Plain, ScramSha256, ScramSha512};
    // The first record founds the journal.
    let mut count = 1;
    for (mechanism, password) in
        [(Plain, "secret of replica"), (ScramSha256, "secret-of-replica"), (ScramSha512, "secret-of-replica")]
    {
        let journal = brokers.connect_with(&with(Some((mechanism, "replica", password))));
        count += 1;
        assert_eq!(Brokers::append(&journal, mechanism.name()), Position::new(count));
        assert_eq!(journal.end(), Ok(Position::new(count)));
        journal.trim(Position::new(count)).unwrap();
    }
    for (user, expected) in [
        (Some((Plain, "replica", "a guess")), "PLAIN"),
        (Some((ScramSha256, "replica", "a guess")), "SCRAM-SHA-256"),
        (Some((ScramSha512, "replica", "a guess")), "SCRAM-SHA-512"),
        (Some((ScramSha512, "nobody", "secret")), "nobody"),
        (Some((ScramSha512, "other", "secret-of-other")), "may not see topic \"plinth\""),
        (None, "set user, passwordFile and saslMechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"),
    ] {
        let error = complaint(&with(user));
        assert!(
            matches!(&error, Error::Refused { message } if message.contains(expected)),
            "{expected}: {error}"
        );
    }
    let in_the_clear = KafkaOptions { tls: None, ..with(Some((Plain, "replica", "secret of replica"))) };
    assert!(complaint(&in_the_clear).to_string().contains("for everybody to read"));
}

#[test]
fn a_user_at_a_listener_without_users_is_refused() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(1);
    let user =
        User { mechanism: SaslMechanism::ScramSha512, name: "replica".to_owned(), password: String::new() };
    let error = complaint(&KafkaOptions { user: Some(user), ..brokers.options() });
    assert!(matches!(&error, Error::Refused { message } if message.contains("knows no users")), "{error}");
}
