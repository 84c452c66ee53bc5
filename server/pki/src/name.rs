//! Distinguished names (RFC 5280, 4.1.2.4). All other code uses this decoder and encoder.
//!
//! Admission, validation, approval and signing read a request's subject here, and authentication the subject
//! of a certificate. A name is either decoded completely or rejected:
//!
//! - Values are decoded as Go's `crypto/x509` decodes those of certificates: `UTF8String`, `PrintableString`
//!   (with `*` and `&`), `IA5String`, `NumericString`, `T61String` (as Latin-1) and `BMPString`. All others
//!   are rejected; Go's decoder of requests ignores them.
//! - A relative distinguished name without an attribute, an attribute with more than a type and a value, and
//!   NUL in a value are rejected. Go accepts them; other decoders stop there, or ignore what follows.
//! - Of several common names the last one is used, as in Go. Attributes of one relative distinguished name
//!   keep their order.

use yasna::tags::TAG_OID;

use super::der::{Reader, SEQUENCE, SET};

/// The type of an attribute: an object identifier, encoded.
pub(crate) type AttributeType = &'static [u8];

/// `2.5.4.3`: the user of a client certificate.
pub const COMMON_NAME: AttributeType = &[0x55, 4, 3];
/// `2.5.4.10`: a group of a client certificate's user.
pub const ORGANIZATION: AttributeType = &[0x55, 4, 10];
/// `1.3.6.1.4.1.57683.2`: the UID of a client certificate's user (kubernetes `pkg/util/asn1`).
pub const UID: AttributeType = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// `2.5.4.5`.
const SERIAL_NUMBER: AttributeType = &[0x55, 4, 5];
/// Types that may be repeated in an issued subject, in Go's order: country, province, locality, street
/// address, postal code, organization, organizational unit.
const REPEATED: [AttributeType; 7] = [
    &[0x55, 4, 6],
    &[0x55, 4, 8],
    &[0x55, 4, 7],
    &[0x55, 4, 9],
    &[0x55, 4, 17],
    ORGANIZATION,
    &[0x55, 4, 11],
];

/// An invalid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is not the DER of a name.
    #[error("x509: invalid RDNSequence")]
    Structure,
    /// A value that is not a string, or a string of an unsupported type: its tag.
    #[error("x509: invalid RDNSequence: invalid attribute value: unsupported string type: {0}")]
    StringType(u8),
    /// A value with characters that are invalid for its type.
    #[error("x509: invalid RDNSequence: invalid attribute value: invalid {0}")]
    Characters(&'static str),
}

/// A name: attributes in their order, each with its type and text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    attributes: Vec<(Vec<u8>, String)>,
}

impl Name {
    /// Decodes DER.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_der(der: &[u8]) -> Result<Name, NameError> {
        const STRUCTURE: NameError = NameError::Structure;
        let mut outer = Reader::new(der);
        let mut sets = Reader::new(outer.read(SEQUENCE).ok_or(STRUCTURE)?);
        outer.end().ok_or(STRUCTURE)?;
        let mut attributes = Vec::new();
        while !sets.is_empty() {
            let mut set = Reader::new(sets.read(SET).ok_or(STRUCTURE)?);
            if set.is_empty() {
                return Err(STRUCTURE);
            }
            while !set.is_empty() {
                let mut attribute = Reader::new(set.read(SEQUENCE).ok_or(STRUCTURE)?);
                let kind = attribute.object_identifier().ok_or(STRUCTURE)?;
                let value = attribute.element().ok_or(STRUCTURE)?;
                attribute.end().ok_or(STRUCTURE)?;
                attributes.push((kind.to_vec(), text(value.tag, value.contents)?));
            }
        }
        Ok(Name { attributes })
    }

    /// The name of a user: organizations (groups), a common name and a UID.
    pub fn of_user(name: &str, groups: &[&str], uid: &str) -> Name {
        let groups = groups.iter().map(|group| (ORGANIZATION.to_vec(), (*group).to_owned()));
        let uid = Some((UID.to_vec(), uid.to_owned())).filter(|(_, uid)| !uid.is_empty());
        let name = (COMMON_NAME.to_vec(), name.to_owned());
        Name { attributes: groups.chain([name]).chain(uid).collect() }
    }

    /// The values of a type, in order.
    pub fn values<'a>(&'a self, kind: &'a [u8]) -> impl Iterator<Item = &'a str> {
        self.attributes.iter().filter(move |(own, _)| own == kind).map(|(_, value)| value.as_str())
    }

    /// The common name, the last one of several; empty without one.
    pub fn common_name(&self) -> &str {
        self.values(COMMON_NAME).last().unwrap_or_default()
    }

    /// Values of all `O` attributes, in order; Kubernetes' groups.
    pub fn organizations(&self) -> Vec<&str> {
        self.values(ORGANIZATION).collect()
    }

    /// Whether it has no attributes.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The subject of a certificate that is issued for a request with this subject, with the attributes that
    /// upstream issues (Go's `pkix.Name.ToRDNSequence`). Attributes of other types, including the UID, are
    /// dropped.
    pub fn issued(&self) -> Name {
        let repeated = REPEATED.iter().flat_map(|kind| self.values(kind).map(|value| (kind.to_vec(), value)));
        let last = [COMMON_NAME, SERIAL_NUMBER].into_iter().filter_map(|kind| {
            let value = self.values(kind).last().filter(|value| !value.is_empty())?;
            Some((kind.to_vec(), value))
        });
        let attributes = repeated.chain(last).map(|(kind, value)| (kind, value.to_owned())).collect();
        Name { attributes }
    }

    /// Encodes DER: one attribute per relative distinguished name, as `PrintableString` if possible (without
    /// question marks), else as `UTF8String` (RFC 5280, 4.1.2.4).
    pub fn to_der(&self) -> Vec<u8> {
        yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                for (kind, value) in &self.attributes {
                    writer.next().write_set(|writer| {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_tagged_implicit(TAG_OID, |writer| writer.write_bytes(kind));
                            // The encoder panics at a question mark, although it is in the set.
                            match value.bytes().all(|byte| is_printable(byte) && byte != b'?') {
                                true => writer.next().write_printable_string(value),
                                false => writer.next().write_utf8_string(value),
                            }
                        });
                    });
                }
            });
        })
    }
}

/// The set of `PrintableString` (X.680, 41.4).
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte)
}

/// Decodes a string value.
fn text(tag: u8, bytes: &[u8]) -> Result<String, NameError> {
    let ascii = |is_good: fn(u8) -> bool| {
        let good = bytes.iter().all(|byte| is_good(*byte));
        good.then(|| bytes.iter().copied().map(char::from).collect::<String>())
    };
    let (kind, text) = match tag {
        0x0c => ("UTF-8 string", String::from_utf8(bytes.to_vec()).ok()),
        0x12 => ("NumericString", ascii(|byte| byte.is_ascii_digit() || byte == b' ')),
        0x13 => ("PrintableString", ascii(|byte| is_printable(byte) || byte == b'*' || byte == b'&')),
        0x14 => ("T61String", ascii(|_| true)),
        0x16 => ("IA5String", ascii(|byte| byte.is_ascii())),
        0x1e => ("BMPString", bmp(bytes)),
        other => return Err(NameError::StringType(other)),
    };
    text.filter(|text| !text.contains('\0')).ok_or(NameError::Characters(kind))
}

/// Two bytes for each character of the Basic Multilingual Plane.
fn bmp(bytes: &[u8]) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    // Surrogates and noncharacters are rejected.
    let is_character = |unit: &u16| !matches!(unit, 0xfdd0..=0xfdef | 0xfffe | 0xffff);
    let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
    units.map(|unit| Some(unit).filter(is_character).and_then(|unit| char::from_u32(unit.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{encode_name as encode, Raw};

    #[test]
    fn strings_by_table() {
        let characters = |kind| Err(NameError::Characters(kind));
        let rows: [(u8, &[u8], Result<&str, NameError>); 19] = [
            (0x0c, "jörg".as_bytes(), Ok("jörg")),
            (0x0c, b"j\xf6rg", characters("UTF-8 string")),
            (0x0c, b"admin\0.example", characters("UTF-8 string")),
            (0x0c, b"", Ok("")),
            (0x12, b"0 1", Ok("0 1")),
            (0x12, b"a", characters("NumericString")),
            (0x13, b"system:node:a", Ok("system:node:a")),
            (0x13, b"*.a&b", Ok("*.a&b")),
            (0x13, b"a@b", characters("PrintableString")),
            (0x14, b"j\xf6rg", Ok("jörg")),
            (0x14, b"a\0", characters("T61String")),
            (0x16, b"a@b", Ok("a@b")),
            (0x16, b"\xf6", characters("IA5String")),
            (0x1e, b"\0a\0b", Ok("ab")),
            (0x1e, b"\0a\0", characters("BMPString")),
            (0x1e, b"\0a\0\0", characters("BMPString")),
            (0x1e, b"\xd8\0\xdc\0", characters("BMPString")),
            (0x1c, b"\0\0\0a", Err(NameError::StringType(0x1c))),
            (0x1b, b"a", Err(NameError::StringType(0x1b))),
        ];
        for (tag, value, expected) in rows {
            let name = Name::from_der(&encode(&[&[(COMMON_NAME, tag, value)]]));
            assert_eq!(name.as_ref().map(Name::common_name).map_err(|e| *e), expected, "{tag:#x} {value:?}");
        }
    }

    #[test]
    fn names_by_table() {
        let cn = |value: &'static str| -> Raw<'static> { (COMMON_NAME, 0x0c, value.as_bytes()) };
        let o = |value: &'static str| -> Raw<'static> { (ORGANIZATION, 0x0c, value.as_bytes()) };
        let read = |sets: &[&[Raw<'_>]]| Name::from_der(&encode(sets));
        let name = read(&[&[cn("a"), o("x")], &[o("y")], &[o("x"), cn("b")]]).unwrap();
        assert_eq!((name.common_name(), name.organizations()), ("b", vec!["x", "y", "x"]));
        assert_eq!(read(&[]), Ok(Name::default()));
        assert_eq!(read(&[&[cn("a")], &[], &[o("system:masters")]]), Err(NameError::Structure));
        // A third member of an attribute, bytes behind the name, a name that is cut.
        let mut der = encode(&[&[cn("a")]]);
        der.push(0);
        assert_eq!(Name::from_der(&der), Err(NameError::Structure));
        assert_eq!(Name::from_der(&der[..der.len() - 2]), Err(NameError::Structure));
        let third = [0x30, 12, 0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 3, 0x0c, 0, 5];
        assert_eq!(Name::from_der(&third), Err(NameError::Structure));
        assert_eq!(Name::from_der(&[0x31, 0]), Err(NameError::Structure));
    }

    #[test]
    fn what_is_issued_is_what_was_read() {
        let sets: &[&[Raw<'_>]] = &[
            &[(COMMON_NAME, 0x0c, b"first")],
            &[(UID, 0x0c, b"someone else's")],
            &[(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 1], 0x16, b"a@b")],
            &[(ORGANIZATION, 0x14, b"gr\xfcn"), (&[0x55, 4, 6], 0x13, b"CH")],
            &[(COMMON_NAME, 0x1e, b"\0l\0a\0s\0t")],
        ];
        let name = Name::from_der(&encode(sets)).unwrap();
        let again = Name::from_der(&name.issued().to_der()).unwrap();
        let expected: &[&[Raw<'_>]] = &[
            &[(&[0x55, 4, 6], 0x13, b"CH")],
            &[(ORGANIZATION, 0x0c, "grün".as_bytes())],
            &[(COMMON_NAME, 0x13, b"last")],
        ];
        assert_eq!(name.issued().to_der(), encode(expected));
        assert_eq!((again.common_name(), again.organizations()), ("last", vec!["grün"]));
        assert_eq!(Name::of_user("jane", &["a", "b"], "u").to_der().len(), 59);
    }
}
