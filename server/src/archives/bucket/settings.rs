//! Credentials, region and endpoint: variables of the environment, and files of profiles, as AWS' own tools
//! and libraries read them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use object_store::aws::AmazonS3Builder;
use url::Url;

/// Bytes of a file that are read.
const MAX_FILE: u64 = 1 << 20;

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum SettingsError {
    #[error("{variable}: {path}: {source}")]
    File { variable: &'static str, path: PathBuf, source: io::Error },
    #[error("AWS_PROFILE: there is no profile {0:?} in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) or AWS_CONFIG_FILE (~/.aws/config)")]
    NoProfile(String),
    #[error("the profile {0:?} has no aws_access_key_id; roles, processes and single sign-on in profiles are not supported, \
             set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")]
    NoKey(String),
    #[error("{0} has characters other than visible ASCII, or is empty")]
    Characters(&'static str),
    #[error("AWS_ENDPOINT_URL: {0:?} is no URL of the form https://HOST:PORT")]
    Endpoint(String),
    #[error("AWS_CA_BUNDLE: {0}")]
    Authorities(String),
    #[error("the variables AWS_… do not fit together: {0}")]
    Invalid(String),
}

/// What requests are made with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BucketSettings {
    /// ID, secret, session token; otherwise the environment names other sources.
    key: Option<(String, String, Option<String>)>,
    region: Option<String>,
    /// URL of a store other than AWS'.
    pub(super) endpoint: Option<String>,
    /// PEM of the authorities to trust instead of the system's.
    pub(super) authorities: Option<Vec<u8>>,
}

impl BucketSettings {
    /// A store with these settings, and with those that only the environment has.
    pub(super) fn builder(&self) -> AmazonS3Builder {
        let mut builder = AmazonS3Builder::from_env().with_disable_bulk_delete(true);
        if let Some((id, secret, token)) = &self.key {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            if let Some(token) = token {
                builder = builder.with_token(token);
            }
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder
    }
}

/// The sections of a file of profiles, each with its settings.
type Profiles = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the settings; `environment` has the variables.
pub(super) fn of_environment(
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<BucketSettings, SettingsError> {
    let variable = |name: &'static str| match environment(name).map(OsString::into_string) {
        Some(Ok(value)) if !value.is_empty() => Ok(Some(value)),
        Some(Err(_)) => Err(SettingsError::Characters(name)),
        _ => Ok(None),
    };
    let file = |variable, default: &str| {
        let home = || environment("HOME").map(|home| PathBuf::from(home).join(default));
        let named = environment(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        named.or_else(home).map_or(Ok(Vec::new()), |path| read(variable, path))
    };
    let credentials = profiles(&file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?);
    let configuration = profiles(&file("AWS_CONFIG_FILE", ".aws/config")?);
    let named = variable("AWS_PROFILE")?;
    let profile = named.clone().unwrap_or_else(|| "default".to_owned());
    let sections =
        [credentials.get(&profile), configuration.get(&profile)].into_iter().flatten().collect::<Vec<_>>();
    if let Some(named) = named.filter(|_| sections.is_empty()) {
        return Err(SettingsError::NoProfile(named));
    }
    let of_profile = |name: &str| sections.iter().find_map(|section| section.get(name).cloned());
    let mut settings = BucketSettings::default();
    let of_environment = (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?);
    settings.key = match of_environment {
        (Some(id), Some(secret)) => Some((id, secret, variable("AWS_SESSION_TOKEN")?)),
        // Half of it is an error, which the builder reports.
        (Some(_), None) | (None, Some(_)) => None,
        (None, None) => {
            let id = of_profile("aws_access_key_id").zip(of_profile("aws_secret_access_key"));
            if id.is_none() && environment("AWS_PROFILE").is_some_and(|name| !name.is_empty()) {
                return Err(SettingsError::NoKey(profile));
            }
            id.map(|(id, secret)| (id, secret, of_profile("aws_session_token")))
        }
    };
    settings.region = match variable("AWS_REGION")?.or(variable("AWS_DEFAULT_REGION")?) {
        None => of_profile("region"),
        region => region,
    };
    settings.endpoint = match variable("AWS_ENDPOINT_URL_S3")?.or(variable("AWS_ENDPOINT_URL")?) {
        None => of_profile("endpoint_url"),
        endpoint => endpoint,
    };
    if let Some(path) = environment("AWS_CA_BUNDLE").filter(|path| !path.is_empty()) {
        settings.authorities = Some(read("AWS_CA_BUNDLE", path.into())?);
    }
    check(&settings)?;
    Ok(settings)
}

/// Keys and region become headers, the endpoint the beginning of URLs.
fn check(settings: &BucketSettings) -> Result<(), SettingsError> {
    let key = settings.key.iter().flat_map(|(id, secret, token)| {
        [
            ("the access key ID", Some(id)),
            ("the secret access key", Some(secret)),
            ("the session token", token.as_ref()),
        ]
    });
    for (name, value) in key.chain([("the region", settings.region.as_ref())]) {
        if value.is_some_and(|value| value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(SettingsError::Characters(name));
        }
    }
    if let Some(endpoint) = &settings.endpoint {
        let url = Url::parse(endpoint).ok();
        let is_usable = url.is_some_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        if !is_usable {
            return Err(SettingsError::Endpoint(endpoint.clone()));
        }
    }
    Ok(())
}

/// Reads a file; one that does not exist is empty.
fn read(variable: &'static str, path: PathBuf) -> Result<Vec<u8>, SettingsError> {
    let mut bytes = Vec::new();
    let opened = File::open(&path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    match opened {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SettingsError::File { variable, path, source })
        }
        _ => Ok(bytes),
    }
}

/// Parses a file of profiles: `[NAME]`, or `[profile NAME]`, then lines `KEY = VALUE`. Lines that are
/// indented belong to a setting with parts, of which none is used here.
fn profiles(text: &[u8]) -> Profiles {
    let mut profiles = Profiles::new();
    let mut section = None;
    for line in String::from_utf8_lossy(text).lines() {
        if line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let name = name.trim();
            let name = name.strip_prefix("profile ").unwrap_or(name).trim();
            section = Some(profiles.entry(name.to_owned()).or_default());
        } else if let (Some(section), Some((key, value))) = (&mut section, line.split_once('=')) {
            section.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    profiles
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_with(variables: &[(&str, &str)]) -> Result<BucketSettings, SettingsError> {
        of_environment(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn profiles_are_read_where_the_environment_has_no_key() {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        fs::create_dir(&aws).unwrap();
        fs::write(
            aws.join("credentials"),
            "# mine\n[default]\naws_access_key_id = ONE\naws_secret_access_key=first\n[other]\naws_access_key_id=TWO\n\
             aws_secret_access_key = second\naws_session_token = token\n",
        )
        .unwrap();
        fs::write(
            aws.join("config"),
            "[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = http://nested\n[profile other]\nendpoint_url = http://127.0.0.1:9000\n\
             [profile role]\nrole_arn = arn\n",
        )
        .unwrap();
        let home = home.path().to_str().unwrap();
        let key = |id: &str, secret: &str, token: Option<&str>| {
            Some((id.to_owned(), secret.to_owned(), token.map(str::to_owned)))
        };
        let settings = read_with(&[("HOME", home)]).unwrap();
        assert_eq!(settings.key, key("ONE", "first", None));
        assert_eq!((settings.region.as_deref(), settings.endpoint), (Some("eu-west-1"), None));
        let settings = read_with(&[("HOME", home), ("AWS_PROFILE", "other")]).unwrap();
        assert_eq!(settings.key, key("TWO", "second", Some("token")));
        assert_eq!((settings.region, settings.endpoint.as_deref()), (None, Some("http://127.0.0.1:9000")));
        let settings = read_with(&[
            ("HOME", home),
            ("AWS_ACCESS_KEY_ID", "ENV"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_DEFAULT_REGION", "us-west-2"),
            ("AWS_ENDPOINT_URL", "https://all"),
            ("AWS_ENDPOINT_URL_S3", "https://s3"),
        ])
        .unwrap();
        assert_eq!(settings.key, key("ENV", "secret", None));
        assert_eq!(
            (settings.region.as_deref(), settings.endpoint.as_deref()),
            (Some("us-west-2"), Some("https://s3"))
        );
        let refused = |profile| read_with(&[("HOME", home), ("AWS_PROFILE", profile)]).unwrap_err();
        assert!(matches!(refused("none"), SettingsError::NoProfile(_)));
        assert!(matches!(refused("role"), SettingsError::NoKey(_)));
        assert_eq!(read_with(&[]).unwrap(), BucketSettings::default());
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        for endpoint in
            ["host:9000", "ftp://host", "http://", "http://1.2.3.999", "http://h/?q", "http://u:p@h"]
        {
            let refused = read_with(&[("AWS_ENDPOINT_URL", endpoint)]);
            assert!(matches!(refused, Err(SettingsError::Endpoint(_))), "{endpoint}: {refused:?}");
        }
        let token =
            [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_SESSION_TOKEN", "c\nd")];
        assert!(matches!(read_with(&token), Err(SettingsError::Characters(_))));
        assert!(matches!(read_with(&[("AWS_REGION", "eu west")]), Err(SettingsError::Characters(_))));
    }
}
