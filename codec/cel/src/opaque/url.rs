//! URLs, read as Go's `url.ParseRequestURI` reads them.

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// With the port, brackets and all.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    /// Reads an absolute URL or an absolute path.
    pub(crate) fn parse_request(text: &str) -> Result<Url, String> {
        let url = plinth_codec::url::parse(text, true)?;
        Ok(Url {
            scheme: url.scheme,
            host: unescape(url.host),
            path: escape_path(url.path),
            query: url.query.to_owned(),
        })
    }
}

/// Decodes `%XX`; what is no escape stays.
pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        let digits = bytes.get(i + 1..i + 3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.filter(|_| b == b'%').and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(b);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes characters that a path must not have; existing escapes are kept.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(b as char),
            b if b"-._~$&+,/:;=@%!'()*[]".contains(&b) => out.push(b as char),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}
