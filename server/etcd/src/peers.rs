//! Flags about members of a cluster: there is one member, which has no peers. What a manifest of one member
//! reports is taken; what asks for more is refused. Nothing listens for peers.

use crate::options::EtcdOptions;
use crate::start_error::StartError;

const INITIAL_CLUSTER: &str = "--initial-cluster";

/// The URLs for peers that clients learn from the member list: those of the flags.
pub(crate) fn urls(options: &EtcdOptions) -> Vec<String> {
    options.initial_advertise_peer_urls.clone()
}

/// Refuses flags that name other members, or this one by another name or URL, as etcd does.
pub(crate) fn check(options: &EtcdOptions) -> Result<(), StartError> {
    let refused = |reason| Err(StartError::Flag { flag: INITIAL_CLUSTER, reason });
    if options.initial_cluster.is_empty() {
        return Ok(());
    }
    let mut urls = Vec::new();
    for member in &options.initial_cluster {
        let Some((name, url)) = member.split_once('=') else {
            return refused(format!("{member:?} is not NAME=URL"));
        };
        if name != options.name {
            let reason = match urls.is_empty() && options.initial_cluster.len() == 1 {
                true => format!("couldn't find local name {:?} in {member:?}", options.name),
                false => format!(
                    "{name:?} is another member than {:?}; plinth etcd is a cluster of one",
                    options.name
                ),
            };
            return refused(reason);
        }
        urls.push(url.trim_end_matches('/').to_owned());
    }
    let advertised: Vec<_> =
        options.initial_advertise_peer_urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
    let missing = |from: &[String], of: &[String]| from.iter().find(|url| !of.contains(url)).cloned();
    if advertised.is_empty() {
        return Ok(());
    }
    if let Some(url) = missing(&urls, &advertised) {
        return refused(format!("{url} is missing from --initial-advertise-peer-urls"));
    }
    match missing(&advertised, &urls) {
        Some(url) => refused(format!("{url} of --initial-advertise-peer-urls is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::options;

    #[test]
    fn one_member_is_taken_and_others_are_refused() {
        let (one, other) = ("n1=https://10.0.0.1:2380", "n2=https://10.0.0.2:2380");
        let url = "--initial-advertise-peer-urls=https://10.0.0.1:2380";
        for (flags, expected) in [
            (&[][..], None),
            (&["--name=n1"], None),
            (&["--name=n1", &format!("--initial-cluster={one}")], None),
            (&["--name=n1", &format!("--initial-cluster={one}"), url], None),
            (&["--name=n1", &format!("--initial-cluster={one}/"), url], None),
            (&["--name=n1", &format!("--initial-cluster={one},n1=http://h:1")], None),
            (&["--name=n1", &format!("--initial-cluster={one},{other}")], Some("is a cluster of one")),
            (&["--name=n2", &format!("--initial-cluster={one},{other}")], Some("is a cluster of one")),
            (&[&format!("--initial-cluster={one}")], Some("couldn't find local name \"default\"")),
            (&["--name=n1", "--initial-cluster=n1"], Some("is not NAME=URL")),
            (
                &["--name=n1", "--initial-cluster=n1=https://10.0.0.9:2380", url],
                Some("https://10.0.0.9:2380 is missing from --initial-advertise-peer-urls"),
            ),
            (
                &[
                    "--name=n1",
                    &format!("--initial-cluster={one}"),
                    url,
                    "--initial-advertise-peer-urls=http://h:1",
                ],
                Some("http://h:1 of --initial-advertise-peer-urls is missing"),
            ),
        ] {
            let refused = check(&options(flags)).map_err(|error| error.to_string()).err();
            match expected {
                None => assert_eq!(refused, None, "{flags:?}"),
                Some(part) => {
                    assert!(refused.as_ref().is_some_and(|text| text.contains(part)), "{refused:?}")
                }
            }
        }
    }
}
