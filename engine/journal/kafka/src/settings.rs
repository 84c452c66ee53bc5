//! The settings of the journal's topic: those that it is created with, and what is wrong with others.

use plinth_journal::record;

use crate::records;
use crate::wire::Settings;

/// Bytes of a file of the log: of trimmed records, whole files are removed.
const SEGMENT_BYTES: usize = 64 << 20;
/// The shortest retention that is accepted, which is far above what replicas that run need.
const LEAST_RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

/// Names of the settings that matter.
pub(crate) mod setting {
    pub(crate) const CLEANUP: &str = "cleanup.policy";
    pub(crate) const COMPRESSION: &str = "compression.type";
    pub(crate) const FLUSH: &str = "flush.messages";
    pub(crate) const MAX_MESSAGE: &str = "max.message.bytes";
    pub(crate) const MIN_IN_SYNC: &str = "min.insync.replicas";
    pub(crate) const RETENTION_BYTES: &str = "retention.bytes";
    pub(crate) const RETENTION_TIME: &str = "retention.ms";
    pub(crate) const SEGMENT: &str = "segment.bytes";
    pub(crate) const UNCLEAN: &str = "unclean.leader.election.enable";
}

/// The settings of a topic that is created.
pub(crate) fn settings_of_new(replicas: usize, max_record_bytes: usize) -> Vec<(&'static str, String)> {
    let max_message = max_record_bytes + records::OVERHEAD;
    vec![
        (setting::CLEANUP, "delete".to_owned()),
        (setting::RETENTION_TIME, "-1".to_owned()),
        (setting::RETENTION_BYTES, "-1".to_owned()),
        (setting::MIN_IN_SYNC, majority(replicas).to_string()),
        (setting::UNCLEAN, "false".to_owned()),
        // On disk before it is answered, and not only in the memory of a majority.
        (setting::FLUSH, "1".to_owned()),
        (setting::MAX_MESSAGE, max_message.to_string()),
        (setting::SEGMENT, SEGMENT_BYTES.max(2 * max_message).to_string()),
        (setting::COMPRESSION, "producer".to_owned()),
    ]
}

/// Arguments of `kafka-topics` that create the topic with these settings.
pub(crate) fn as_arguments(replicas: usize, settings: &[(&str, String)]) -> String {
    let settings: Vec<String> =
        settings.iter().map(|(name, value)| format!("--config {name}={value}")).collect();
    format!("--partitions 1 --replication-factor {replicas} {}", settings.join(" "))
}

fn majority(replicas: usize) -> usize {
    replicas / 2 + 1
}

/// How many replicas have a record before its append is answered, or what is wrong with the settings.
pub(crate) fn check_settings(
    settings: &Settings,
    replicas: usize,
    max_record_bytes: usize,
) -> Result<usize, String> {
    let value = |name: &str| settings.get(name).ok_or_else(|| format!("Kafka does not say its {name}"));
    let number = |name: &str| {
        let text = value(name)?;
        text.parse::<i64>().map_err(|_| format!("its {name} is {text:?}"))
    };
    let cleanup = value(setting::CLEANUP)?;
    if cleanup != "delete" {
        return Err(format!(
            "its {} is {cleanup}, which removes records that replicas need: set it to delete",
            setting::CLEANUP
        ));
    }
    let compression = value(setting::COMPRESSION)?;
    if !matches!(compression, "producer" | "uncompressed") {
        return Err(format!(
            "its {} is {compression}, which replicas do not read: set it to producer",
            setting::COMPRESSION
        ));
    }
    let retention = number(setting::RETENTION_TIME)?;
    if (0..LEAST_RETENTION_MS).contains(&retention) {
        return Err(format!(
            "its {} is {retention}, which removes records that replicas need: set it to -1, they remove what they \
             do not need",
            setting::RETENTION_TIME
        ));
    }
    let retention = number(setting::RETENTION_BYTES)?;
    if retention >= 0 {
        return Err(format!(
            "its {} is {retention}, which removes records that replicas need: set it to -1, they remove what they \
             do not need",
            setting::RETENTION_BYTES
        ));
    }
    let min_in_sync = usize::try_from(number(setting::MIN_IN_SYNC)?).unwrap_or(0);
    if min_in_sync < majority(replicas) {
        return Err(format!(
            "its {} is {min_in_sync} with {replicas} replicas, so that an acknowledged write could be lost: set it \
             to {}",
            setting::MIN_IN_SYNC,
            majority(replicas)
        ));
    }
    if min_in_sync > replicas {
        return Err(format!(
            "its {} is {min_in_sync} with {replicas} replicas, so that nothing can be written: set it to {}",
            setting::MIN_IN_SYNC,
            majority(replicas)
        ));
    }
    if value(setting::UNCLEAN)? != "false" {
        return Err(format!("its {} loses acknowledged writes: set it to false", setting::UNCLEAN));
    }
    let largest = usize::try_from(number(setting::MAX_MESSAGE)?).unwrap_or(0);
    let needed = max_record_bytes.saturating_add(records::OVERHEAD);
    if largest < needed {
        let limit = largest.saturating_sub(records::OVERHEAD);
        let or = match limit < record::LEAST_LIMIT {
            true => String::new(),
            false => format!(", or set maxRecordBytes in --journal-config to {limit} or less"),
        };
        let name = setting::MAX_MESSAGE;
        return Err(format!("its {name} is {largest}: set it to {needed} or more{or}"));
    }
    Ok(min_in_sync)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 1 << 20;

    fn settings(changes: &[(&str, &str)]) -> Settings {
        let mut values: Vec<(String, String)> =
            settings_of_new(3, LARGEST).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for (name, value) in changes {
            values.retain(|(found, _)| found != name);
            values.push(((*name).to_owned(), (*value).to_owned()));
        }
        Settings { error: 0, message: None, values }
    }

    #[test]
    fn a_topic_as_it_is_created_is_accepted() {
        assert_eq!(check_settings(&settings(&[]), 3, LARGEST), Ok(2));
        let longer = settings(&[("retention.ms", "604800000"), ("max.message.bytes", "9000000")]);
        assert_eq!(check_settings(&longer, 3, LARGEST), Ok(2));
        for (replicas, expected) in [(1, "1"), (2, "2"), (3, "2"), (5, "3")] {
            assert!(
                settings_of_new(replicas, LARGEST).contains(&("min.insync.replicas", expected.to_owned()))
            );
        }
    }

    #[test]
    fn a_topic_that_loses_records_is_refused_with_what_to_do() {
        for (name, value, advice) in [
            ("cleanup.policy", "compact", "set it to delete"),
            ("cleanup.policy", "compact,delete", "set it to delete"),
            ("compression.type", "zstd", "set it to producer"),
            ("retention.ms", "600000", "set it to -1"),
            ("retention.ms", "soon", "is \"soon\""),
            ("retention.bytes", "1000000000", "set it to -1"),
            ("min.insync.replicas", "1", "set it to 2"),
            ("min.insync.replicas", "4", "set it to 2"),
            ("unclean.leader.election.enable", "true", "set it to false"),
            ("max.message.bytes", "1048588", "set it to 1049600 or more, or set maxRecordBytes"),
        ] {
            let problem = check_settings(&settings(&[(name, value)]), 3, LARGEST).unwrap_err();
            assert!(problem.contains(name) && problem.contains(advice), "{name}={value}: {problem}");
        }
        let small = settings(&[("max.message.bytes", "1000")]);
        let problem = check_settings(&small, 3, LARGEST).unwrap_err();
        assert!(problem.ends_with("set it to 1049600 or more"), "no limit is as low: {problem}");
        let silent = Settings { error: 0, message: None, values: Vec::new() };
        assert!(check_settings(&silent, 3, LARGEST).unwrap_err().contains("does not say"));
    }
}
