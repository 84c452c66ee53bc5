//! The fuzz target of Tables. Shared with the smoke test on stable Rust (`server/kinds/tests/tables.rs`). It
//! returns for every input.

use std::time::SystemTime;

use plinth_codec::json;
use plinth_codec::negotiate::MetaVersion;
use plinth_codec::table::{Now, RowObject, Writer};

const ROW_OF: [(&str, &str); 6] = [
    ("", "pods"),
    ("", "services"),
    ("apps", "deployments"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("networking.k8s.io", "ingresses"),
    ("", "resourcequotas"),
];

/// A stored body, as rows of several kinds. A row that is written is JSON.
pub(crate) fn table_row(input: &[u8]) {
    for (group, resource) in ROW_OF {
        let definition = plinth_kinds::of(group, resource).table();
        let mut out = Vec::new();
        let mut table = Writer::new(&definition, MetaVersion::V1, Now::from(SystemTime::UNIX_EPOCH));
        if table.row(input, "1", RowObject::None, &mut out).is_ok() {
            assert!(json::parse(&out).is_ok());
        }
    }
}
