//! Options of `pods/log`: what may be asked for together, and the query for the kubelet.
//!
//! Upstream: kubernetes `pkg/apis/core/validation` (`ValidatePodLogOptions`), `pkg/registry/core/pod`
//! (`LogLocation`), with the gate `PodLogsQuerySplitStreams` off, as it is by default.

use plinth_codec::Value;

use super::options::is_set;
use plinth_api::{ApiError, Cause};

/// Whether the kubelet's certificate is not to be verified for this request.
pub(super) fn skips_verification(options: &Value) -> bool {
    is_set(options, "insecureSkipTLSVerifyBackend")
}

/// Validates the options of the log of a pod.
///
/// # Errors
/// 422 with each of the errors.
pub(super) fn validate(options: &Value, pod: &str) -> Result<(), ApiError> {
    let less_than = |least: i64, key: &str, why: &str| {
        let given = options.get(key).and_then(Value::as_int).filter(|given| *given < least);
        given.map(|given| Cause::invalid(key, given, why))
    };
    let given = |key: &str| options.get(key).is_some_and(|value| !value.is_null());
    let mut causes = Vec::new();
    causes.extend(less_than(0, "tailLines", "must be greater than or equal to 0"));
    causes.extend(less_than(1, "limitBytes", "must be greater than 0"));
    if given("sinceSeconds") && given("sinceTime") {
        // Upstream's path of the options themselves, an index without a number.
        causes.push(Cause::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else {
        causes.extend(less_than(1, "sinceSeconds", "must be greater than 0"));
    }
    if given("stream") {
        causes.push(Cause::forbidden("stream", "may not be specified"));
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("", "PodLogOptions", pod, causes)),
    }
}

/// The options in the kubelet's words, in the order of their names, as Go's `url.Values` has them.
pub(super) fn query(options: &Value) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for key in ["follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "tailLines", "timestamps"] {
        match options.get(key) {
            Some(Value::Bool(true)) => drop(query.append_pair(key, "true")),
            Some(value) => match (value.as_int(), value.as_str()) {
                (Some(number), _) => drop(query.append_pair(key, &number.to_string())),
                (_, Some(text)) => drop(query.append_pair(key, text)),
                _ => {}
            },
            None => {}
        }
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn options_out_of_range_or_in_conflict_are_refused() {
        const SINCE: &str = r#"{"sinceSeconds":0,"sinceTime":"2026-01-02T03:04:05Z"}"#;
        // options, the errors
        let rows = [
            ("{}", ""),
            (r#"{"tailLines":0,"limitBytes":1,"sinceSeconds":1}"#, ""),
            (r#"{"tailLines":-1}"#, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            (r#"{"limitBytes":0}"#, "limitBytes: Invalid value: 0: must be greater than 0"),
            (r#"{"sinceSeconds":0}"#, "sinceSeconds: Invalid value: 0: must be greater than 0"),
            (SINCE, "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
            (r#"{"stream":"All"}"#, "stream: Forbidden: may not be specified"),
            (
                r#"{"tailLines":-2,"sinceSeconds":-3}"#,
                "[tailLines: Invalid value: -2: must be greater than or equal to 0, \
                 sinceSeconds: Invalid value: -3: must be greater than 0]",
            ),
        ];
        for (options, expected) in rows {
            let found = validate(&json::parse(options.as_bytes()).unwrap(), "p");
            let message = found.map_or_else(|error| error.message, |()| String::new());
            let expected = match expected {
                "" => String::new(),
                errors => format!("PodLogOptions \"p\" is invalid: {errors}"),
            };
            assert_eq!(message, expected, "{options}");
        }
    }

    #[test]
    fn the_query_for_a_kubelet() {
        let options = r#"{"timestamps":true,"follow":true,"previous":false,"tailLines":5,"limitBytes":1,
            "sinceTime":"2026-01-02T03:04:05Z","insecureSkipTLSVerifyBackend":true,"container":"a"}"#;
        let options = json::parse(options.as_bytes()).unwrap();
        let expected =
            "follow=true&limitBytes=1&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=5&timestamps=true";
        assert_eq!(query(&options), expected);
        assert!(skips_verification(&options) && !skips_verification(&Value::Null));
    }
}
