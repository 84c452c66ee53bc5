//! The fuzz target of Tables over changed bodies, on stable Rust.

#[path = "../../../fuzz/tables.rs"]
mod tables;

use proptest::prelude::*;

const BODY: &str = r#"{"metadata":{"name":"n","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"containers":[{}],"replicas":2,"metrics":[{"type":"Resource","resource":{"name":"cpu"}}],"rules":[{"host":"h"}]},"status":{"phase":"Running","containerStatuses":[{"restartCount":1,"state":{"waiting":{"reason":"R"}}}],"hard":{"cpu":"1"}}}"#;

proptest! {
    #[test]
    fn any_body_gives_a_row_or_an_error(
        at in 0..BODY.len(),
        cut in 0..12usize,
        put in "[\\[\\]{}\":,\\\\u0-9a-z -]{0,12}",
    ) {
        let mut body = BODY.as_bytes().to_vec();
        let end = (at + cut).min(body.len());
        body.splice(at..end, put.bytes());
        tables::table_row(&body);
    }
}
