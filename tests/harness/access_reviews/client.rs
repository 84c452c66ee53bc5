//! An HTTP/1.1 client that sends requests as given: no path is cleaned, no header added but the length.

use plinth_benches::api::client::{Endpoint, Protocol};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

type Stream = BufReader<TlsStream<TcpStream>>;

/// A client with one connection, opened again when it was closed.
pub struct Client {
    endpoint: Endpoint,
    stream: Option<Stream>,
}

/// Status and body of a response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// The `Location` header.
    pub location: Option<String>,
    /// The body; empty when it was not read because it has no end of its own.
    pub body: Vec<u8>,
}

impl Answer {
    /// The code with the reason of a Status, `text` for an error that is none, or where it redirects to. An
    /// answer to HEAD has no body to tell.
    pub fn summary(&self, method: &str) -> String {
        if let Some(location) = &self.location {
            return format!("{} to {location}", self.code);
        }
        match self.code {
            0..400 => self.code.to_string(),
            code if method == "HEAD" => code.to_string(),
            code => match self.json() {
                Some(status) if status["kind"] == "Status" => {
                    format!("{code} {}", status["reason"].as_str().unwrap_or("")).trim_end().to_owned()
                }
                _ => format!("{code} text"),
            },
        }
    }

    /// The body, when it is JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// What a response's header section determines about its body.
#[derive(Default)]
struct Head {
    code: u16,
    length: Option<usize>,
    chunked: bool,
    closes: bool,
    location: Option<String>,
}

impl Client {
    /// A client of that server.
    pub fn new(endpoint: Endpoint) -> Client {
        Client { endpoint, stream: None }
    }

    /// Sends a request. `endless` says that the body of a good answer has no end and is not to be read.
    ///
    /// # Errors
    /// When the connection breaks off before the answer's end.
    pub async fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: &[u8],
        endless: bool,
    ) -> std::io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = self.endpoint.stream(Protocol::Http1).await;
                BufReader::new(stream.map_err(std::io::Error::other)?)
            }
        };
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.endpoint.authority());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        stream.write_all(&request).await?;
        stream.flush().await?;
        let mut head = read_head(&mut stream).await?;
        while (102..200).contains(&head.code) || head.code == 100 {
            head = read_head(&mut stream).await?;
        }
        let mut answer = Answer { code: head.code, location: head.location.clone(), body: Vec::new() };
        // A tunnel has no body.
        let is_tunnel = head.code == 101 || (method == "CONNECT" && head.code < 300);
        if is_tunnel || (endless && head.code < 300) {
            return Ok(answer);
        }
        let ends = read_body(&mut stream, &head, method, &mut answer.body).await?;
        if ends && !head.closes {
            self.stream = Some(stream);
        }
        Ok(answer)
    }
}

async fn read_head(stream: &mut Stream) -> std::io::Result<Head> {
    let mut head = Head::default();
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let code = line.split(' ').nth(1).and_then(|code| code.trim().parse().ok());
    head.code = code.ok_or_else(|| std::io::Error::other(format!("no answer but {line:?}")))?;
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(head) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.parse().ok(),
            "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => head.closes = value.eq_ignore_ascii_case("close"),
            "location" => head.location = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Reads a body; whether the connection can be used again.
async fn read_body(
    stream: &mut Stream,
    head: &Head,
    method: &str,
    body: &mut Vec<u8>,
) -> std::io::Result<bool> {
    if method == "HEAD" || matches!(head.code, 204 | 304) {
        return Ok(true);
    }
    if head.chunked {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            stream.read_exact(&mut body[start..]).await?;
            stream.read_line(&mut line).await?;
            if length == 0 {
                return Ok(true);
            }
        }
    }
    match head.length {
        Some(length) => {
            body.resize(length, 0);
            stream.read_exact(body).await?;
            Ok(true)
        }
        None => {
            stream.read_to_end(body).await?;
            Ok(false)
        }
    }
}
