//! What StorageClass and VolumeAttributesClass share.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::path::at;

pub(crate) fn provisioner(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match name {
        "" => errors.push(field::required(path, "")),
        name => check_text(path, &name.to_lowercase(), names::qualified_name_errors, errors),
    }
}

pub(crate) fn parameters(class: &Value, path: &str, may_be_absent: bool, errors: &mut Vec<Cause>) {
    const MAX: usize = 512;
    const MAX_SIZE: usize = 256 * 1024;
    let Some(given) = at(class, path).and_then(Value::as_object).filter(|m| !m.is_empty() || may_be_absent)
    else {
        if !may_be_absent {
            errors.push(field::required(path, "must contain at least one key/value pair"));
        }
        return;
    };
    if given.len() > MAX {
        let mut error = field::too_many(path, given.len(), MAX);
        error.message = format!("Too long: may not be more than {MAX} bytes");
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
    if size > MAX_SIZE {
        errors.push(field::too_long(path, MAX_SIZE));
    }
}
