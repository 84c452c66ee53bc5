//! Tables as JSON, row by row.

use super::age::Now;
use super::partial::write_partial_metadata;
use super::project::MalformedJson;
use super::table_meta::TableMeta;
use super::{json, ColumnDefinition, TableDefinition};
use crate::negotiate::MetaVersion;
use crate::Value;

/// The object of a row.
#[derive(Clone, Copy, Debug)]
pub enum RowObject<'a> {
    /// `null`.
    None,
    /// The metadata: the object `{…}` under `metadata` of the body, to which the row's resourceVersion is
    /// added.
    Metadata(&'a [u8]),
    /// The whole object as finished JSON, in pieces.
    Object(&'a [&'a [u8]]),
}

/// Writes one table. Owns nothing but its state, so it can live as long as a stream.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    definition: &'a TableDefinition,
    version: MetaVersion,
    now: Now,
    first: bool,
}

impl<'a> Writer<'a> {
    /// A table of these columns. Ages are relative to `now`.
    pub fn new(definition: &'a TableDefinition, version: MetaVersion, now: Now) -> Writer<'a> {
        Writer { definition, version, now, first: true }
    }

    /// Appends everything up to the first row; metadata that is not known yet is left out. Without headers
    /// the columns are `null`, as in all events of a watch but the first.
    pub fn begin(&mut self, metadata: Option<&TableMeta<'_>>, heads: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"kind\":\"Table\",\"apiVersion\":\"");
        out.extend_from_slice(self.version.api_version().as_bytes());
        out.push(b'"');
        if let Some(metadata) = metadata {
            out.extend_from_slice(b",\"metadata\":");
            metadata.write(out);
        }
        out.extend_from_slice(b",\"columnDefinitions\":");
        if heads {
            for (i, column) in self.definition.columns().iter().enumerate() {
                out.push(if i == 0 { b'[' } else { b',' });
                head(column, out);
            }
            out.push(b']');
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"rows\":[");
        self.first = true;
    }

    /// Appends the row of an object, given as its stored JSON body, with or without type metadata and
    /// resourceVersion. One pass over the body, with memory for the values of the columns only.
    ///
    /// # Errors
    /// [`MalformedJson`] when the body is not JSON; then nothing is appended.
    pub fn row(
        &mut self,
        body: &[u8],
        resource_version: &str,
        object: RowObject<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedJson> {
        let mut tree = self.definition.paths().read(body)?;
        if self.definition.shows_resource_version() {
            if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
                metadata.insert("resourceVersion", resource_version.to_owned());
            }
        }
        self.row_of(&tree, resource_version, object, out);
        Ok(())
    }

    /// Appends the row of an object tree.
    pub fn row_of(&mut self, tree: &Value, resource_version: &str, object: RowObject<'_>, out: &mut Vec<u8>) {
        if !self.first {
            out.push(b',');
        }
        self.first = false;
        out.extend_from_slice(b"{\"cells\":[");
        for (i, cell) in self.definition.cells(tree, self.now).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json::cell(&cell, out);
        }
        out.push(b']');
        if let Some(condition) = self.definition.condition(tree) {
            out.extend_from_slice(b",\"conditions\":[{\"type\":");
            json::text(condition.kind, out);
            out.extend_from_slice(b",\"status\":\"True\",\"reason\":");
            json::text(condition.reason, out);
            out.extend_from_slice(b",\"message\":");
            json::text(condition.message, out);
            out.extend_from_slice(b"}]");
        }
        out.extend_from_slice(b",\"object\":");
        match object {
            RowObject::None => out.extend_from_slice(b"null"),
            RowObject::Metadata(metadata) => {
                write_partial_metadata(metadata, resource_version, self.version, out);
            }
            RowObject::Object(pieces) => pieces.iter().for_each(|piece| out.extend_from_slice(piece)),
        }
        out.push(b'}');
    }

    /// Appends what follows the last row. No line end.
    pub fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}");
    }
}

fn head(column: &ColumnDefinition, out: &mut Vec<u8>) {
    let members = [
        ("{\"name\":", &column.name),
        (",\"type\":", &column.kind),
        (",\"format\":", &column.format),
        (",\"description\":", &column.description),
    ];
    for (name, value) in members {
        out.extend_from_slice(name.as_bytes());
        json::text(value, out);
    }
    json::number(out, format_args!(",\"priority\":{}}}", column.priority));
}
