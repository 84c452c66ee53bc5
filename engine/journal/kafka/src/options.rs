//! [`KafkaOptions`]: where the journal is, and how it is reached.

use std::fmt;

use plinth_journal::{is_address, shown_url, Tls};

/// Most brokers that a URL may name.
const MAX_BROKERS: usize = 16;

/// Where a journal is in Kafka, and how Kafka is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Addresses of brokers, `host:port`. The other ones are asked for.
    pub brokers: Vec<String>,
    /// The topic, which is this journal's alone.
    pub topic: String,
    /// Bytes of the largest record. The topic's `max.message.bytes` must be above it by 1 KiB.
    pub max_record_bytes: usize,
    /// TLS; none for plain connections.
    pub tls: Option<Tls>,
    /// The user; none where Kafka asks for none.
    pub user: Option<User>,
}

/// A user of Kafka.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// How the password is proven.
    pub mechanism: SaslMechanism,
    /// Name for SASL.
    pub name: String,
    /// In plain text; never printed.
    pub password: String,
}

/// How a user proves to know a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// By sending it.
    Plain,
    /// By SCRAM with SHA-256.
    ScramSha256,
    /// By SCRAM with SHA-512.
    ScramSha512,
}

impl SaslMechanism {
    /// All of them.
    pub const ALL: [SaslMechanism; 3] =
        [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512];

    /// Its name in Kafka.
    pub const fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("mechanism", &self.mechanism)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a URL does not name a journal in Kafka.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no URL of a journal in Kafka: {reason} (expected kafka://HOST:PORT,HOST:PORT/TOPIC)")]
pub struct OptionsError {
    url: String,
    reason: &'static str,
}

impl KafkaOptions {
    /// The largest record unless option sets another: room for several of the largest objects.
    pub const DEFAULT_MAX_RECORD_BYTES: usize = 8 << 20;

    /// Reads `kafka://HOST:PORT,HOST:PORT,HOST:PORT/TOPIC`.
    ///
    /// # Errors
    /// [`OptionsError`] for any other form.
    pub fn parse(url: &str) -> Result<KafkaOptions, OptionsError> {
        let error = |reason| OptionsError { url: shown_url(url), reason };
        let rest = url.strip_prefix("kafka://").ok_or_else(|| error("it does not begin with kafka://"))?;
        let (brokers, topic) = rest.split_once('/').ok_or_else(|| error("it names no topic"))?;
        let brokers: Vec<String> = brokers.split(',').map(str::to_owned).collect();
        if brokers.len() > MAX_BROKERS {
            return Err(error("it names more than 16 brokers"));
        }
        if !brokers.iter().all(|broker| is_address(broker)) {
            return Err(error("a broker is not HOST:PORT"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if matches!(topic, "" | "." | "..") || !topic.chars().all(is_plain) || topic.len() > 249 {
            return Err(error("a topic has up to 249 letters, digits, '-', '_' and '.'"));
        }
        Ok(KafkaOptions {
            brokers,
            topic: topic.to_owned(),
            max_record_bytes: KafkaOptions::DEFAULT_MAX_RECORD_BYTES,
            tls: None,
            user: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_brokers_and_a_topic() {
        let options = KafkaOptions::parse("kafka://a:9092,127.0.0.1:9093,[::1]:9094/team.plinth").unwrap();
        assert_eq!(options.brokers, ["a:9092", "127.0.0.1:9093", "[::1]:9094"]);
        assert_eq!(options.topic, "team.plinth");
        for bad in [
            "",
            "etcd://a:1/t",
            "kafka://a:9092",
            "kafka://a:9092/",
            "kafka:///t",
            "kafka://a/t",
            "kafka://a:0/t",
            "kafka://a:99999/t",
            "kafka://a:1,/t",
            "kafka://a:1/t/u",
            "kafka://a:1/..",
            "kafka://a:1/t?x=1",
            "kafka://user@a:1/t",
            "kafka://[::x]:1/t",
            "kafka://a:1/töpic",
        ] {
            assert!(KafkaOptions::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let user = User { mechanism: SaslMechanism::Plain, name: "root".into(), password: "secret".into() };
        let tls = Tls { certificate_authority: vec![1], identity: Some((vec![2], b"key".to_vec())) };
        let printed = format!("{user:?} {tls:?}");
        assert!(
            printed.contains("root") && !printed.contains("secret") && !printed.contains("107"),
            "{printed}"
        );
    }
}
