//! Behaviour of the YAML reader and writer, as seen on goyaml v2.

use super::*;
use crate::error::DecodeError;
use crate::{tree, Value};

fn read(text: &str) -> Value {
    to_value(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}")).0
}

fn error(text: &str) -> String {
    to_value(text.as_bytes()).unwrap_err().to_string()
}

fn written(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn keys_become_strings() {
    let expected = tree!({ "1": "a", "true": "b", "0.5": "c", "2001-01-01": "d", "420": "e" });
    assert_eq!(read("1: a\nyes: b\n.5: c\n2001-01-01: d\n0644: e\n"), expected);
    assert!(error("? [a]\n: b\n").contains("invalid map key"));
    assert!(error("~: b\n").contains("unsupported map key"));
}

#[test]
fn tags_are_followed() {
    assert_eq!(
        read("a: !!str 1\nb: !!float 2\nc: !custom 3\nd: ! 4\ne: !!binary aGk=\n"),
        tree!({ "a": "1", "b": Value::Float(2.0), "c": "3", "d": 4i64, "e": "hi" })
    );
    assert_eq!(error("a: !!int x\n"), "yaml: cannot decode !!str `x` as a !!int");
}

#[test]
fn aliases_and_merges() {
    let text = "base: &b {p: 1, q: 2}\nmore: &m {q: 3, r: 4}\none:\n  <<: *b\n  q: 9\ntwo:\n  q: 9\n  <<: [*b, *m]\nthree: *b\n";
    let value = read(text);
    assert_eq!(value.get("one"), Some(&tree!({ "p": 1i64, "q": 9i64 })));
    // Merged keys replace those before them, and of several sources the first one takes precedence.
    assert_eq!(value.get("two"), Some(&tree!({ "p": 1i64, "q": 2i64, "r": 4i64 })));
    assert_eq!(value.get("three"), Some(&tree!({ "p": 1i64, "q": 2i64 })));
    assert!(error("a: &a [*a]\n").contains("contains itself"), "{}", error("a: &a [*a]\n"));
    assert!(error("a: *b\n").contains("unknown anchor"));
    assert!(error("<<: 1\n").contains("map merge requires"));
}

#[test]
fn an_alias_bomb_is_refused_early() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_string();
    for i in 1..12 {
        let last = i - 1;
        text += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{last}"); 9].join(", "));
    }
    assert_eq!(error(&text), "yaml: document contains excessive aliasing");
}

#[test]
fn depth_is_bounded() {
    let text = (0..20_000).map(|i| " ".repeat(i % 3) + "- ").collect::<String>();
    assert!(to_value(text.as_bytes()).is_err());
    let deep = "- ".repeat(12_000) + "x";
    assert_eq!(error(&deep), "yaml: line 1: exceeded max depth of 10000");
    let chain: String = (1..15_000).map(|i| format!("- &a{i} [*a{}]\n", i - 1)).collect();
    assert!(error(&format!("- &a0 x\n{chain}")).contains("excessive aliasing"));
    assert!(error(&"[".repeat(100_000)).contains("exceeded max depth"));
    let on_small_stack = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        let deep = "- ".repeat(9_999) + "x";
        assert_eq!(written(&read(&deep)).len(), deep.len() + 1);
    });
    on_small_stack.unwrap().join().unwrap();
}

#[test]
fn one_document_only() {
    assert_eq!(read("---\na: 1\n---\n"), tree!({ "a": 1i64 }));
    assert_eq!(read("# only a comment\n"), Value::Null);
    assert_eq!(read(""), Value::Null);
    assert_eq!(error("a: 1\n---\nb: 2\n"), "yaml: line 3: more than one document");
}

#[test]
fn repeated_keys_are_named_and_the_last_counts() {
    let (value, strict) = to_value(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n1: x\n'1': y\n").unwrap();
    assert_eq!(value.get("a"), Some(&Value::Int(3)));
    assert_eq!(strict.len(), 1);
    assert_eq!(
        strict[0].to_string(),
        "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 5: key \"a\" already set in map"
    );
    let (value, strict) = to_value(br#"{"a": 1, "a": 2}"#).unwrap();
    assert_eq!((value.get("a"), strict.len()), (Some(&Value::Int(2)), 1), "JSON as YAML");
}

#[test]
fn errors_have_goyamls_words() {
    for (text, message) in [
        ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
        ("x: 1\na: b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("x: 1\ny: {a\n", "yaml: line 2: did not find expected ',' or '}'"),
        ("a\0b", "yaml: control characters are not allowed"),
        ("a: .nan\n", "json: unsupported value: NaN"),
    ] {
        assert_eq!(error(text), message);
    }
    assert_eq!(to_value(b"a: \xff\n").unwrap_err().to_string(), "yaml: invalid leading UTF-8 octet");
    assert!(matches!(to_value(b"a: [1, 2\n"), Err(DecodeError::Yaml { .. })));
    assert!(matches!(to_value(b"\"abc\\"), Err(DecodeError::Yaml { .. })));
    assert!(matches!(to_value(b"[!t,a]"), Ok(_) | Err(DecodeError::Yaml { .. })));
}

#[test]
fn strings_are_quoted_where_they_must_be() {
    for (text, expected) in [
        ("plain", "plain"),
        ("", "\"\""),
        ("true", "\"true\""),
        ("no", "\"no\""),
        ("12", "\"12\""),
        ("1e3", "\"1e3\""),
        ("1:20", "\"1:20\""),
        ("2008-01-01T01:01:01Z", "\"2008-01-01T01:01:01Z\""),
        ("null", "\"null\""),
        ("a: b", "'a: b'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("- a", "'- a'"),
        ("-a", "-a"),
        ("*", "'*'"),
        ("'it'", "'''it'''"),
        ("it's", "it's"),
        ("[a]", "'[a]'"),
        ("a]", "a]"),
        ("{}", "'{}'"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("a\tb", "\"a\\tb\""),
        ("a\\b", "a\\b"),
        ("é", "é"),
        ("😀", "\"\\U0001F600\""),
        ("---", "'---'"),
        ("%x", "'%x'"),
        ("@x", "'@x'"),
        ("=", "="),
        ("<<", "<<"),
        ("?", "'?'"),
        ("a:", "'a:'"),
    ] {
        assert_eq!(written(&tree!({ "k": text })), format!("k: {expected}\n"), "{text:?}");
    }
}

#[test]
fn text_of_many_lines_is_a_block() {
    for (text, expected) in [
        ("a\nb\n", "k: |\n  a\n  b\n"),
        ("a\nb", "k: |-\n  a\n  b\n"),
        ("a\n\nb\n\n", "k: |+\n  a\n\n  b\n\n"),
        ("\n", "k: |2+\n\n"),
        ("  a\nb", "k: |2-\n    a\n  b\n"),
        ("a \nb", "k: \"a \\nb\"\n"),
        ("a\nb ", "k: \"a\\nb \"\n"),
        ("a\tb\n", "k: \"a\\tb\\n\"\n"),
        ("a\r\nb", "k: \"a\\r\\nb\"\n"),
    ] {
        assert_eq!(written(&tree!({ "k": text })), expected, "{text:?}");
        assert_eq!(read(expected), tree!({ "k": text }), "{expected:?}");
    }
}

#[test]
fn a_block_without_a_last_line_break_gets_none() {
    assert_eq!(read("k: |\n  a\n  b"), tree!({ "k": "a\nb" }));
    assert_eq!(read("k: |\n  a\n  "), tree!({ "k": "a\n" }));
    assert_eq!(read("k: |\n  a\nl: x"), tree!({ "k": "a\n", "l": "x" }));
}

#[test]
fn layout_is_that_of_goyaml() {
    let value = tree!({
        "list": tree!([tree!({ "a": 1i64, "b": tree!(["x"]) }), tree!([tree!([1i64]), Value::object()]), "text"]),
        "map": tree!({ "empty": Value::object(), "none": Value::Null, "nil": Value::Array(vec![]) }),
        "float": Value::Float(0.5),
    });
    let expected = "float: 0.5\nlist:\n- a: 1\n  b:\n  - x\n- - - 1\n  - {}\n- text\nmap:\n  empty: {}\n  nil: []\n  none: null\n";
    assert_eq!(written(&value), expected);
    assert_eq!(read(expected), value);
    let long = "k".repeat(129);
    let value =
        tree!({ "m": Value::Object([(long.as_str().into(), tree!({ "a": 1i64 }))].into_iter().collect()) });
    assert_eq!(written(&value), format!("m:\n  ? {long}\n  : a: 1\n"));
    assert_eq!(read(&written(&value)), value);
    assert_eq!(written(&Value::Null), "null\n");
}

#[test]
fn elements_one_by_one_read_like_the_whole() {
    let elements = [
        tree!({ "a": tree!([1i64, tree!({})]), "t": "x\ny\n" }),
        tree!({}),
        tree!([tree!([2i64])]),
        Value::from("s"),
    ];
    let mut out = b"items:\n".to_vec();
    elements.iter().for_each(|element| write_element(element, &mut out));
    assert_eq!(String::from_utf8(out).unwrap(), written(&tree!({ "items": elements.to_vec() })));
}
