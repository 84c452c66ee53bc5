use proptest::prelude::*;

use super::*;
use crate::name::{COMMON_NAME, ORGANIZATION};
use crate::testing::{dns, encode_name, extension_request, key, pem, sign, Raw};

const UTF8: u8 = 0x0c;

fn cn(value: &str) -> Raw<'_> {
    (COMMON_NAME, UTF8, value.as_bytes())
}

fn o(value: &str) -> Raw<'_> {
    (ORGANIZATION, UTF8, value.as_bytes())
}

fn jane() -> Vec<u8> {
    encode_name(&[&[o("dev")], &[cn("jane")]])
}

/// A request as a line of the data file.
fn shown(outcome: Result<CertificateRequest, RequestError>) -> serde_json::Value {
    match outcome {
        Err(error) => serde_json::json!({ "error": error.to_string() }),
        Ok(request) => serde_json::json!({
            "commonName": request.subject.common_name(),
            "organizations": request.subject.organizations(),
            "dns": request.names.dns,
            "ips": request.names.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
    }
}

/// What is accepted here is accepted by upstream's `ParseCSR`, as the same value: `testdata/judged.json`
/// holds what it made of each request, and `testdata/judge.go` makes that file.
#[test]
fn what_is_accepted_means_the_same_to_upstream() {
    use base64::Engine as _;
    let (mut accepted, mut stricter) = (0, Vec::new());
    for line in include_str!("../testdata/judged.json").lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = base64::engine::general_purpose::STANDARD.decode(row["text"].as_str().unwrap()).unwrap();
        let ours = shown(CertificateRequest::parse(&text));
        let (name, theirs) = (row["name"].as_str().unwrap(), &row["outcome"]);
        if ours.get("error").is_none() {
            assert_eq!(&ours, theirs, "{name}");
            accepted += 1;
        } else if theirs.get("error").is_none() {
            stricter.push(name.to_owned());
        }
    }
    assert_eq!(accepted, ACCEPTED, "accepted here and by upstream");
    assert_eq!(stricter, STRICTER, "refused here alone");
}

const ACCEPTED: usize = 42;
/// Text around the block, headers, values that upstream overlooks, what stands behind what it reads.
const STRICTER: &[&str] = &[
    "layout: two blocks",
    "layout: two blocks, the other order",
    "layout: first block with another end",
    "layout: first block is not base64",
    "layout: first block is cut",
    "layout: first block without an end",
    "layout: first beginning followed by text",
    "layout: first end followed by text",
    "layout: first beginning indented",
    "layout: first beginning behind text",
    "layout: first beginning behind a carriage return",
    "layout: first end behind text",
    "layout: headers",
    "layout: headers that hold a beginning",
    "layout: headers that go on",
    "layout: headers and nothing else",
    "layout: text before",
    "layout: text after",
    "layout: byte order mark",
    "layout: a block within",
    "layout: dashes before",
    "layout: an end before",
    "node: an empty one between",
    "node: a name of a type that is not read",
    "node: another's behind an end that is another's",
    "node: another's behind a beginning followed by text",
    "node: another's behind an end followed by text",
    "node: two blocks",
    "subject: an empty one first",
    "subject: an empty one between",
    "subject: an empty one last",
    "subject: BMPString with an end",
    "subject: UniversalString",
    "subject: VisibleString",
    "subject: GeneralString",
    "subject: GraphicString",
    "subject: OCTET STRING",
    "subject: BIT STRING",
    "subject: INTEGER",
    "subject: a name of type UniversalString",
    "subject: a name of type VisibleString",
    "subject: a name of type OCTET STRING",
    "subject: UTF8String with NUL",
    "subject: a third member of an attribute",
    "attributes: a name with NUL",
    "attributes: a name with a blank",
    "attributes: a name that is empty",
    "attributes: bytes behind the names",
    "attributes: no attribute",
];

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, text in "\\PC{0,80}") {
        for input in [&bytes, text.as_bytes()] {
            crate::fuzzing::certificate_request(input);
            crate::fuzzing::pem_blocks(input);
        }
    }

    /// The fuzz targets over requests with small changes.
    #[test]
    fn no_change_breaks_a_fuzz_target(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let der = sign(&key(), &jane(), &[extension_request(&[&dns(&["a.example"])])]);
        for mut input in [der.clone(), pem(&der).into_bytes(), jane()] {
            for (at, byte) in &changes {
                let at = at.index(input.len());
                input[at] = *byte;
            }
            crate::fuzzing::certificate_request(&input);
            crate::fuzzing::pem_blocks(&input);
        }
    }

    /// One byte of a request changed: an error, or a value of which the signature is not the sender's.
    #[test]
    fn a_changed_byte_is_noticed(at: prop::sample::Index, change in 1u8..) {
        let mut der = sign(&key(), &jane(), &[extension_request(&[&dns(&["a.example"])])]);
        let at = at.index(der.len());
        der[at] ^= change;
        let read = CertificateRequest::from_der(&der).and_then(|request| request.check_signature());
        prop_assert!(read.is_err(), "byte {}", at);
    }
}
