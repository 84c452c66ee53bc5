//! What StorageClass and VolumeAttributesClass share.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};
use plinth_codec::{names, Value};

use crate::checks::rule;
use crate::path::at;

pub(crate) fn provisioner(name: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    match name {
        "" => errors.push(field::required(path, "")),
        name => rule(path, &name.to_lowercase(), names::qualified_name_errors, errors),
    }
}

pub(crate) fn parameters(class: &Value, path: &str, may_be_absent: bool, errors: &mut Vec<Cause>) {
    const MOST: usize = 512;
    const LARGEST: usize = 256 * 1024;
    let Some(given) = at(class, path).and_then(Value::as_object).filter(|m| !m.is_empty() || may_be_absent)
    else {
        if !may_be_absent {
            errors.push(field::required(path, "must contain at least one key/value pair"));
        }
        return;
    };
    if given.len() > MOST {
        let mut error = field::too_many(path, given.len(), MOST);
        error.message = format!("Too long: may not be more than {MOST} bytes");
        error.reason = "FieldValueTooLong";
        errors.push(error);
        return;
    }
    let mut size = 0;
    for (key, value) in given.iter() {
        if key.is_empty() {
            errors.push(field::invalid(path, key.clone(), "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > LARGEST {
        errors.push(field::too_long(path, LARGEST));
    }
}
