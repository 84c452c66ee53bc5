//! [`EtcdOptions`]: where the journal is, and how it is reached.

use std::fmt;

use plinth_journal::{is_address, shown_url, Tls};

/// Most members that a URL may name.
const MAX_MEMBERS: usize = 16;

/// Where a journal is in etcd, and how etcd is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Addresses of the members, `host:port`.
    pub members: Vec<String>,
    /// The journal's keys begin with it and a slash.
    pub prefix: String,
    /// Bytes of the largest record. etcd refuses requests above its `--max-request-bytes`, 1.5 MiB by
    /// default, which this must be below by 64 KiB.
    pub max_record_bytes: usize,
    /// TLS; none for plain connections.
    pub tls: Option<Tls>,
    /// The user; none where etcd asks for none.
    pub user: Option<User>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Name of a user of etcd.
    pub name: String,
    /// In plain text; never printed.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a URL does not name a journal in etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no URL of a journal in etcd: {reason} (expected etcd://HOST:PORT,HOST:PORT/PREFIX)")]
pub struct OptionsError {
    url: String,
    reason: &'static str,
}

impl EtcdOptions {
    /// The largest record unless option sets another: what etcd's default limit leaves.
    pub const DEFAULT_MAX_RECORD_BYTES: usize = (1 << 20) + (384 << 10);

    /// Reads `etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX`.
    ///
    /// # Errors
    /// [`OptionsError`] for any other form.
    pub fn parse(url: &str) -> Result<EtcdOptions, OptionsError> {
        let error = |reason| OptionsError { url: shown_url(url), reason };
        let rest = url.strip_prefix("etcd://").ok_or_else(|| error("it does not begin with etcd://"))?;
        let (members, prefix) = rest.split_once('/').ok_or_else(|| error("it names no prefix"))?;
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        if members.len() > MAX_MEMBERS {
            return Err(error("it names more than 16 members"));
        }
        if !members.iter().all(|member| is_address(member)) {
            return Err(error("a member is not HOST:PORT"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let has_empty_step = prefix.split('/').any(str::is_empty);
        if has_empty_step || !prefix.chars().all(is_plain) || prefix.len() > 256 {
            return Err(error("a prefix has up to 256 letters, digits, '-', '_' and '.', between slashes"));
        }
        Ok(EtcdOptions {
            members,
            prefix: prefix.to_owned(),
            max_record_bytes: EtcdOptions::DEFAULT_MAX_RECORD_BYTES,
            tls: None,
            user: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_members_and_a_prefix() {
        let options = EtcdOptions::parse("etcd://a:2379,127.0.0.1:2380,[::1]:2381/team/plinth").unwrap();
        assert_eq!(options.members, ["a:2379", "127.0.0.1:2380", "[::1]:2381"]);
        assert_eq!(options.prefix, "team/plinth");
        for bad in [
            "",
            "kafka://a:1/t",
            "etcd://a:2379",
            "etcd://a:2379/",
            "etcd:///p",
            "etcd://a/p",
            "etcd://a:0/p",
            "etcd://a:99999/p",
            "etcd://a:1,/p",
            "etcd://a:1//p",
            "etcd://a:1/p/",
            "etcd://a:1/p?x=1",
            "etcd://user@a:1/p",
            "etcd://[::x]:1/p",
            "etcd://a:1/päth",
        ] {
            assert!(EtcdOptions::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let user = User { name: "root".into(), password: "secret".into() };
        let tls = Tls { certificate_authority: vec![1], identity: Some((vec![2], b"key".to_vec())) };
        let printed = format!("{user:?} {tls:?}");
        assert!(
            printed.contains("root") && !printed.contains("secret") && !printed.contains("107"),
            "{printed}"
        );
    }
}
