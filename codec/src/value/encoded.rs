//! Objects that stay JSON text until their members are read.
//!
//! Half of a typical object's nodes are in `metadata.managedFields`, below `fieldsV1`. Most writes leave most
//! of them unchanged, and [`crate::apply`] reads the others from the text. So they are kept in their stored
//! form.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::Map;
use crate::json;

/// An object as JSON text. Cloning it copies a pointer; equal text is equal without being read.
#[derive(Clone)]
pub struct Encoded(Arc<Inner>);

struct Inner {
    text: Box<str>,
    /// Parsed on first use.
    members: OnceLock<Map>,
}

impl Encoded {
    /// Wraps text that must be one JSON object (otherwise it is treated as an empty one).
    pub(crate) fn new(text: impl Into<Box<str>>) -> Encoded {
        Encoded(Arc::new(Inner { text: text.into(), members: OnceLock::new() }))
    }

    /// The text.
    #[inline]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The members. Parses the text on the first call.
    pub fn members(&self) -> &Map {
        self.0.members.get_or_init(|| match json::parse(self.0.text.as_bytes()) {
            Ok(super::Value::Object(members)) => members,
            _ => Map::new(),
        })
    }
}

impl PartialEq for Encoded {
    fn eq(&self, other: &Encoded) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text() || self.members() == other.members()
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use crate::value::{Encoded, Value};
    use crate::{json, tree};

    #[test]
    fn it_is_the_object_that_it_says() {
        let text = r#"{"f:b":{},"f:a":{"f:c":{}}}"#;
        let object = json::parse(text.as_bytes()).unwrap();
        let mut encoded = Value::Encoded(Encoded::new(text));
        assert_eq!(encoded, object);
        assert_eq!(object, encoded);
        assert_eq!(encoded, Value::Encoded(Encoded::new(r#"{ "f:a" : {"f:c":{}}, "f:b":{}}"#)));
        assert_ne!(encoded, Value::Encoded(Encoded::new("{}")));
        assert_ne!(encoded, tree!({ "f:b": Value::object() }));
        assert_ne!(encoded, Value::Null);
        assert_eq!(encoded.at(&["f:a", "f:c"]), Some(&Value::object()));
        assert_eq!(encoded.type_name(), "object");
        let untouched = encoded.clone();
        encoded.as_object_mut().unwrap().remove("f:a");
        assert_eq!(encoded, tree!({ "f:b": Value::object() }));
        assert_eq!(untouched, object);
    }
}
