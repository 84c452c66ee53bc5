//! String formats (kube-openapi, `pkg/validation/strfmt`).

mod address;
mod code;
mod moment;

use super::node::{Kind, Node};

/// The check of a format.
type Check = fn(&str) -> bool;

/// String formats; dashes in their names are ignored.
const TEXT_FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", code::is_object_id),
    ("byte", code::is_base64),
    ("cidr", address::is_cidr),
    ("creditcard", code::is_credit_card),
    ("date", moment::is_date),
    ("datetime", moment::is_date_time),
    ("duration", moment::is_duration),
    ("email", address::is_email),
    ("hexcolor", code::is_hex_color),
    ("hostname", address::is_hostname),
    ("ipv4", address::is_ipv4),
    ("ipv6", address::is_ipv6),
    ("isbn", |text| code::is_isbn10(text) || code::is_isbn13(text)),
    ("isbn10", code::is_isbn10),
    ("isbn13", code::is_isbn13),
    ("k8slongname", |text| plinth_codec::names::dns1123_subdomain_errors(text).is_empty()),
    ("k8sshortname", |text| plinth_codec::names::dns1123_label_errors(text).is_empty()),
    ("mac", address::is_mac),
    ("password", |_| true),
    ("rgbcolor", code::is_rgb_color),
    ("ssn", code::is_social_security_number),
    ("uri", address::is_uri),
    ("uuid", |text| code::is_uuid(text, None)),
    ("uuid3", |text| code::is_uuid(text, Some(b'3'))),
    ("uuid4", |text| code::is_uuid(text, Some(b'4'))),
    ("uuid5", |text| code::is_uuid(text, Some(b'5'))),
];

fn check(format: &str) -> Option<Check> {
    let name = format.replace('-', "");
    let at = TEXT_FORMATS.binary_search_by(|(known, _)| (*known).cmp(&name)).ok()?;
    TEXT_FORMATS.get(at).map(|(_, check)| *check)
}

/// Whether a text matches a format; any text matches an unknown one.
pub(super) fn fits(format: &str, text: &str) -> bool {
    check(format).is_none_or(|check| check(text))
}

/// Whether a format is known for the type of a schema; others are ignored.
pub(super) fn is_supported(node: &Node, format: &str) -> bool {
    let kind = match node.int_or_string {
        true => Kind::Any,
        false => node.kind,
    };
    is_known(kind, format)
}

/// As [`is_supported`], by type.
pub(super) fn is_known(kind: Kind, format: &str) -> bool {
    match kind {
        Kind::Any | Kind::String => check(format).is_some(),
        Kind::Integer => matches!(format, "int32" | "int64"),
        Kind::Number => matches!(format, "float" | "double"),
        Kind::Boolean | Kind::Array | Kind::Object => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(TEXT_FORMATS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(is_known(Kind::String, "date-time") && is_known(Kind::Any, "k8s-short-name"));
        assert!(!is_known(Kind::Integer, "date") && !is_known(Kind::String, "int32"));
    }

    #[test]
    fn texts_fit_or_not() {
        let long_label = "a".repeat(64);
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "bsonobjectid",
                &["507f1f77bcf86cd799439011"],
                &["507f1f77bcf86cd79943901", "zz7f1f77bcf86cd799439011"],
            ),
            ("byte", &["aGk=", "aGVsbG8h", "+/+/"], &["", "a", "aGk", "_-_-"]),
            (
                "cidr",
                &["10.0.0.0/8", "010.0.0.0/8", "2001:db8::/32"],
                &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "x/8"],
            ),
            ("creditcard", &["4242-4242-4242-4242", "378282246310005"], &["4242424242424241", "", "1"]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-29", "2024-02-29T", ""]),
            (
                "date-time",
                &["2024-02-29T10:11:12Z", "2024-02-29t10:11:12.5+01:00", "2024-02-29T23:59:59z"],
                &[
                    "2024-02-29T24:00:00Z",
                    "2024-02-29 10:11:12Z",
                    "2024-02-29T10:11:12",
                    "2024",
                    "T10:11:12Z",
                ],
            ),
            (
                "duration",
                &["1h30m", "22 ns", "3 weeks", "1 day 2 hours", "-1.5s"],
                &["", "1", "abc", "5 parsecs"],
            ),
            (
                "email",
                &["a@b", "a.b+c@example.com", "Bob <bob@example.com>", "\"a b\"@c.d"],
                &["", "a", "a@", "@b", "a@b@c", "a b@c", "a..b@c", "a@b,c@d"],
            ),
            ("hexcolor", &["#fff", "FFFFFF"], &["#ffff", "#ggg", ""]),
            (
                "hostname",
                &[
                    "localhost",
                    "a.example.com",
                    "1a.example.com",
                    "a-b.example.com",
                    "ünï.example.com",
                    "a-bc",
                ],
                &["", "-a", "a_b", "foo-bar", "a.b.c1", "a..com", "a-.example.com", &long_label],
            ),
            ("ipv4", &["1.2.3.4", "01.02.03.004", "::ffff:1.2.3.4"], &["1.2.3", "1.2.3.256", "::1", ""]),
            ("ipv6", &["::1", "2001:db8::1", "::ffff:1.2.3.4"], &["1.2.3.4", ":::", "fe80::1%eth0", ""]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044", "978-0321751042"]),
            ("isbn10", &["0-321-75104-3", "080442957X"], &["978-0321751041"]),
            ("isbn13", &["978 0321751041"], &["0321751043"]),
            ("k8s-short-name", &["a-b", "1"], &["A", "a.b", "-a", &long_label]),
            ("k8s-long-name", &["a.b", "a"], &["A", "a..b"]),
            (
                "mac",
                &["01:23:45:67:89:ab", "0123.4567.89AB", "01-23-45-67-89-ab-cd-ef"],
                &["01:23:45", "0g:23:45:67:89:ab", "01:23-45:67:89:ab"],
            ),
            ("password", &["", "x"], &[]),
            ("rgbcolor", &["rgb(0, 10,255)"], &["rgb(256,0,0)", "rgb(0,0)", "RGB(0,0,0)"]),
            ("ssn", &["111-22-3333", "111 22 3333"], &["111223333", "111-22-333"]),
            (
                "uri",
                &["https://example.com/a?b=c", "/a/b", "mailto:a@b", "http://[::1]:80/", "*"],
                &[
                    "",
                    "a/b",
                    "example.com",
                    "http://a b/",
                    "http://[::1",
                    "http://a/%zz",
                    "http://a:x/",
                    "1http://a",
                ],
            ),
            (
                "uuid",
                &["F47AC10B-58CC-4372-0567-0E02B2C3D479", "f47ac10b58cc437205670e02b2c3d479"],
                &["f47ac10b", "g47ac10b-58cc-4372-0567-0e02b2c3d479"],
            ),
            ("uuid3", &["bcd02e22-68f0-3046-a512-327cca9def8f"], &["bcd02e22-68f0-4046-a512-327cca9def8f"]),
            ("uuid4", &["025b0d74-00a2-4048-bf57-227c5111bb34"], &["025b0d74-00a2-4048-7f57-227c5111bb34"]),
            ("uuid5", &["886313e1-3b8a-5372-9b90-0c9aee199e5d"], &["886313e1-3b8a-3372-9b90-0c9aee199e5d"]),
            ("no-such-format", &["anything"], &[]),
        ];
        for (format, good, bad) in cases {
            good.iter().for_each(|text| assert!(fits(format, text), "{format} {text:?}"));
            bad.iter().for_each(|text| assert!(!fits(format, text), "{format} {text:?}"));
        }
    }
}
