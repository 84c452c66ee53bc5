//! What claims, classes and slices of devices share: names, selectors, opaque parameters, taints, conditions
//! of a binding (kubernetes `pkg/apis/resource/validation/validation.go`).

use std::collections::HashSet;

use plinth_api::{Cause, FieldPath, MOST_ERRORS};
use plinth_codec::time::Timestamp;
use plinth_codec::{json, names, Map, Value};

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, AnyText, By, In, Is, OneOf, RequiredOneOf, Set, Text};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Computed};
use crate::resource::selector::{self, Written};

/// Maximum number of selectors of a request or a class.
const MAX_SELECTORS: usize = 32;

/// Maximum length of opaque parameters and of data about a device in bytes.
const MAX_RAW: usize = 10 * 1024;

/// Maximum number of conditions of a binding, and of failures of one.
const MAX_BINDING_CONDITIONS: usize = 4;

/// Runs a rule on each element of a list. A list of more than `most` elements is one error, and nothing else
/// of it is looked at.
pub(crate) fn each_of(holder: &Part<'_>, key: &str, most: usize, rule: impl Fn(&Part<'_>)) -> bool {
    if !holder.at_most_items(key, most) {
        return false;
    }
    for element in holder.each(key) {
        if element.errors() >= MOST_ERRORS {
            break;
        }
        rule(&element);
    }
    true
}

/// As [`each_of`]; then reports the elements whose key, a text of theirs or (`""`) they themselves, occurred
/// before.
pub(crate) fn each_of_set(holder: &Part<'_>, key: &str, most: usize, id: &str, rule: impl Fn(&Part<'_>)) {
    if !each_of(holder, key, most, rule) {
        return;
    }
    let mut seen = HashSet::new();
    for element in holder.each(key) {
        let id = element.text(id);
        if !seen.insert(id) {
            element.duplicate("", id);
        }
    }
}

/// Validates the selectors of a request or a class.
pub(crate) fn selectors(holder: &Part<'_>, written: Written) {
    each_of(holder, "selectors", MAX_SELECTORS, |selector| match selector.get("cel") {
        None => selector.required("cel", ""),
        Some(cel) => selector::validate(&cel, written),
    });
}

/// Validates the configuration of a driver.
pub(crate) fn opaque_config(config: &Part<'_>, written: Written) {
    config.check(&[Set("opaque", ""), In("opaque", &[Is("driver", csi_driver_name)])]);
    if let Some(opaque) = config.get("opaque") {
        raw_object(&opaque, "parameters", written);
    }
}

/// Validates raw JSON: an object, of bounded length where it is new.
pub(crate) fn raw_object(holder: &Part<'_>, key: &str, written: Written) {
    let Some(given) = holder.at(key) else {
        holder.required(key, "");
        return;
    };
    let mut text = Vec::new();
    json::write_untyped(given, &mut text);
    if written == Written::New && text.len() > MAX_RAW {
        holder.push(Cause::too_long(holder.path(key), MAX_RAW));
    } else if given.as_object().is_none() {
        holder.invalid(key, "<value omitted>", "must be a valid JSON object");
    }
}

/// Validates the name of a pool: subdomains, separated by slashes.
pub(crate) fn pool_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 253;
    if name.is_empty() {
        errors.push(Cause::required(path, ""));
        return;
    }
    if name.len() > MAX {
        errors.push(Cause::too_long(path, MAX));
    }
    for part in name.split('/') {
        errors
            .extend(names::dns1123_subdomain_errors(part).iter().map(|why| Cause::invalid(path, part, why)));
    }
}

/// Validates the name of an attribute or a capacity: an identifier of C, with a domain and a slash before it
/// where it is not the driver's own. Names with more slashes pass, as upstream's do.
pub(crate) fn qualified_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            match domain {
                "" => errors.push(Cause::invalid(path, "", "the domain must not be empty")),
                domain => csi_driver_name(domain, path, errors),
            }
            match id {
                "" => errors.push(Cause::invalid(path, "", "the name must not be empty")),
                id => identifier(id, path, errors),
            }
        }
        _ => {}
    }
}

/// As [`qualified_name`], and the domain must be there.
pub(crate) fn fully_qualified_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    qualified_name(name, path, errors);
    if !name.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(Cause::invalid(path, name, why));
    }
}

fn identifier(id: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 32;
    const FORM: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    if id.len() > MAX {
        errors.push(Cause::too_long(path, MAX));
    }
    let starts = id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        errors.push(Cause::invalid(path, id, FORM));
    }
}

/// Validates a UUID in its usual form, with lowercase digits.
pub(crate) fn uuid(uid: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
    const LENGTH: usize = 36;
    match uuid_error(uid.as_bytes()) {
        Some(why) => errors.push(Cause::invalid(path, uid, &format!("error validating uid: {why}"))),
        None if uid.len() != LENGTH || uid.bytes().any(|b| b.is_ascii_uppercase()) => {
            errors.push(Cause::invalid(path, uid, FORM));
        }
        None => {}
    }
}

/// Why a text is a UUID in none of the forms that are read (github.com/google/uuid, `Validate`).
fn uuid_error(uid: &[u8]) -> Option<String> {
    const MALFORMED: &str = "invalid UUID format";
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let digits = match uid {
        uid if uid.len() == 36 => uid,
        uid if uid.len() == 36 + 9 => match uid.split_at(9) {
            (urn, rest) if urn.eq_ignore_ascii_case(b"urn:uuid:") => rest,
            (urn, _) => {
                let urn = plinth_codec::error::quoted(&String::from_utf8_lossy(urn));
                return Some(format!("invalid urn prefix: {urn}"));
            }
        },
        [b'{', rest @ .., b'}'] if rest.len() == 36 => rest,
        uid if uid.len() == 36 + 2 => return Some("invalid bracketed UUID format".to_owned()),
        uid if uid.len() == 32 => {
            return (!uid.iter().all(u8::is_ascii_hexdigit)).then(|| MALFORMED.to_owned())
        }
        uid => return Some(format!("invalid UUID length: {}", uid.len())),
    };
    let is_good = digits.iter().enumerate().all(|(i, b)| match HYPHENS.contains(&i) {
        true => *b == b'-',
        false => b.is_ascii_hexdigit(),
    });
    (!is_good).then(|| MALFORMED.to_owned())
}

/// A taint is as old as its first appearance.
pub(crate) const TAINT_DEFAULTS: &[DefaultRule] = &[Computed(|taint| {
    if taint.get("timeAdded").is_none_or(Value::is_null) {
        taint.insert("timeAdded", Timestamp::now().to_rfc3339());
    }
})];

pub(crate) const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Checks of a taint of a device. Upstream lets the effect of a rule's taint be that it was.
pub(crate) const TAINT_NAME: &[Check] =
    &[AnyText("key", names::qualified_name_errors), Text("value", names::label_value_errors)];

/// Checks of a taint of a device in a slice.
pub(crate) const TAINT: &[Check] = &[By(|taint| taint.check(TAINT_NAME)), RequiredOneOf("effect", EFFECTS)];

/// Checks of a toleration of device taints.
pub(crate) const TOLERATION: &[Check] = &[
    Text("key", names::qualified_name_errors),
    By(|toleration| {
        let value = toleration.text("value");
        match toleration.text("operator") {
            "Exists" if !value.is_empty() => {
                toleration.invalid("value", value, "must be empty for operator `Exists`");
            }
            "Equal" => toleration.check_text("value", value, names::label_value_errors),
            _ => {}
        }
    }),
    RequiredOneOf("operator", &["Equal", "Exists"]),
    OneOf("effect", EFFECTS),
];

/// Validates the conditions that a binding waits for, of a device or of an allocation of one.
pub(crate) fn binding_conditions(device: &Part<'_>) {
    const READY: &str = "bindingConditions";
    const FAILED: &str = "bindingFailureConditions";
    for key in [READY, FAILED] {
        each_of(device, key, MAX_BINDING_CONDITIONS, |name| {
            name.check_text("", name.text(""), names::qualified_name_errors);
        });
    }
    let ready: HashSet<&str> = device.texts(READY).into_iter().collect();
    for key in [READY, FAILED] {
        let mut seen = HashSet::new();
        for name in device.each(key) {
            if name.errors() >= MOST_ERRORS {
                return;
            }
            name.unique("", name.text(""), &mut seen);
            if key == FAILED && ready.contains(name.text("")) {
                let why = "bindingFailureConditions must not overlap with bindingConditions";
                name.invalid("", name.text(""), why);
            }
        }
    }
    match (device.list(READY).is_empty(), device.list(FAILED).is_empty()) {
        (true, false) => {
            let why = "bindingConditions are required to use bindingFailureConditions";
            device.invalid(READY, device.shown(READY), why);
        }
        (false, true) => {
            let why = "bindingFailureConditions are required to use bindingConditions";
            device.invalid(FAILED, device.shown(FAILED), why);
        }
        _ => {}
    }
}

/// The elements of a list of objects in order, to be changed.
pub(crate) fn objects_mut<'v>(object: &'v mut Value, path: &[&str]) -> impl Iterator<Item = &'v mut Map> {
    let list = path.iter().try_fold(object, |value, key| value.get_mut(key)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str, rule: fn(&str, FieldPath<'_>, &mut Vec<Cause>)) -> Vec<String> {
        let mut errors = Vec::new();
        rule(text, format_args!("f"), &mut errors);
        errors.into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn uuids_are_read_in_four_forms_and_kept_in_one() {
        const GOOD: &str = "0f9a1c3e-5b7d-4f20-8a6c-112233445566";
        let rows = [
            (GOOD.to_owned(), ""),
            (GOOD.to_uppercase(), "normalized form"),
            (format!("urn:uuid:{GOOD}"), "normalized form"),
            (format!("nru:uuid:{GOOD}"), r#"invalid urn prefix: "nru:uuid:""#),
            (format!("{{{GOOD}}}"), "normalized form"),
            (format!("({GOOD})"), "invalid bracketed UUID format"),
            (GOOD.replace('-', ""), "normalized form"),
            (GOOD.replace("0f", "xx").replace('-', ""), "invalid UUID format"),
            (GOOD.replace("0f", "xx"), "invalid UUID format"),
            (GOOD.replace('-', "_"), "invalid UUID format"),
            (String::new(), "invalid UUID length: 0"),
            ("é".repeat(16), "invalid UUID format"),
        ];
        for (text, part) in rows {
            let found = messages(&text, uuid);
            match part {
                "" => assert_eq!(found, [""; 0], "{text}"),
                part => assert!(matches!(&found[..], [one] if one.contains(part)), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn names_of_attributes() {
        let long = "a".repeat(33);
        // name, number of errors
        let rows = [
            ("a", 0),
            ("d.io/a", 0),
            ("_A9", 0),
            ("", 1),
            ("9a", 1),
            ("a-b", 1),
            ("/a", 1),
            ("d.io/", 1),
            ("/", 2),
            ("D_io/a", 1),
            ("a/b/c", 0),
            (&*long, 1),
        ];
        for (name, count) in rows {
            assert_eq!(messages(name, qualified_name).len(), count, "{name}");
        }
        assert_eq!(messages("a", fully_qualified_name).len(), 1);
        assert_eq!(messages("d.io/a", fully_qualified_name).len(), 0);
    }
}
