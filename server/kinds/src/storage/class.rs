//! What StorageClass and VolumeAttributesClass share.

use plinth_api::Cause;
use plinth_codec::names;

use crate::checks::Check::Required;
use crate::checks::Part;

pub(crate) fn provisioner(class: &Part<'_>, key: &str) {
    match class.text(key) {
        "" => class.required(key, ""),
        name => class.check_text(key, &name.to_lowercase(), names::qualified_name_errors),
    }
}

pub(crate) fn parameters(class: &Part<'_>, may_be_absent: bool) {
    const KEY: &str = "parameters";
    const MAX: usize = 512;
    const MAX_SIZE: usize = 256 * 1024;
    if !may_be_absent {
        class.check(&[Required(KEY, "must contain at least one key/value pair")]);
    }
    if class.members(KEY).count() > MAX {
        class.push(Cause::too_long(KEY, MAX));
        return;
    }
    let mut size = 0;
    for (name, value) in class.members(KEY) {
        if name.is_empty() {
            class.invalid(KEY, name, "field can not be empty.");
        }
        size += name.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_SIZE {
        class.push(Cause::too_long(KEY, MAX_SIZE));
    }
}
