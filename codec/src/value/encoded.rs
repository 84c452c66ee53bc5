//! Objects that stay JSON text until their members are read.
//!
//! Half of a typical object's nodes are in `metadata.managedFields`, below `fieldsV1`. Most writes leave most
//! of them unchanged, and [`crate::apply`] reads the others from the text. So they are kept in their stored
//! form.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::tree::{Encoded, Inner, Map};

impl Encoded {
    /// Wraps text that `parse` reads when it is needed; [`crate::json`] makes them.
    pub(crate) fn new(text: impl Into<Box<str>>, parse: fn(&str) -> Map) -> Encoded {
        Encoded(Arc::new(Inner { text: text.into(), members: OnceLock::new(), parse }))
    }

    /// The JSON text that was wrapped.
    #[inline]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The members. Parses the text on the first call.
    pub fn members(&self) -> &Map {
        self.0.members.get_or_init(|| (self.0.parse)(&self.0.text))
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
    use crate::json::{self, encoded};
    use crate::tree;
    use crate::value::Value;

    #[test]
    fn it_is_the_object_that_its_text_encodes() {
        let text = r#"{"f:b":{},"f:a":{"f:c":{}}}"#;
        let object = json::parse(text.as_bytes()).unwrap();
        let mut value = Value::Encoded(encoded(text));
        assert_eq!(value, object);
        assert_eq!(object, value);
        assert_eq!(value, Value::Encoded(encoded(r#"{ "f:a" : {"f:c":{}}, "f:b":{}}"#)));
        assert_ne!(value, Value::Encoded(encoded("{}")));
        assert_ne!(value, tree!({ "f:b": Value::object() }));
        assert_ne!(value, Value::Null);
        assert_eq!(value.at(&["f:a", "f:c"]), Some(&Value::object()));
        assert_eq!(value.type_name(), "object");
        let untouched = value.clone();
        value.as_object_mut().unwrap().remove("f:a");
        assert_eq!(value, tree!({ "f:b": Value::object() }));
        assert_eq!(untouched, object);
    }
}
