//! The metadata of a Table, as JSON.

use super::json;

/// The metadata of a Table, which is that of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMeta<'a> {
    /// The revision of the list; omitted when empty.
    pub resource_version: &'a str,
    /// The token of the next page; omitted when empty.
    pub continue_token: &'a str,
    /// Number of remaining objects; omitted when unknown.
    pub remaining_item_count: Option<u64>,
}

impl TableMeta<'_> {
    /// Appends the metadata as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let start = out.len();
        let member = |name: &str, out: &mut Vec<u8>| {
            if out.len() > start {
                out.push(b',');
            }
            json::text(name, out);
            out.push(b':');
        };
        if !self.resource_version.is_empty() {
            member("resourceVersion", out);
            json::text(self.resource_version, out);
        }
        if !self.continue_token.is_empty() {
            member("continue", out);
            json::text(self.continue_token, out);
        }
        if let Some(count) = self.remaining_item_count {
            member("remainingItemCount", out);
            json::number(out, format_args!("{count}"));
        }
        out.push(b'}');
    }
}
