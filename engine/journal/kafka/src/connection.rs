//! [`Connection`]: one connection to a broker, one call at a time.

use std::error::Error as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use bytes::{Buf as _, Bytes};
use plinth_journal::{Error, Tls};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::codec::{Api, Decoder, Encoder, Malformed};
use crate::error_code::{code, error_name};
use crate::options::{KafkaOptions, SaslMechanism, User};
use crate::scram::{Exchange, Hash};
use crate::wire::{self, Authenticated};

/// Longest time until a connection can be used: TCP, TLS, versions and the user.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time in which a broker takes a small request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Who waits for a broker looks so often whether the journal is closed.
const CLOSED_CHECK: Duration = Duration::from_millis(100);
/// Largest answer that is taken: a batch above what was asked for comes whole.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// A connection that was idle for longer is looked at before it is used: the broker may have ended it.
const IDLE: Duration = Duration::from_secs(1);
/// The first byte of a TLS record that is an alert.
const TLS_ALERT: u8 = 21;

const CLOSED: &str = "the journal is closed, as this replica ends";

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The request did not reach a broker, or was refused for now: it has changed nothing.
    NotMade(String),
    /// Nothing is known of its outcome.
    Unknown(String),
    /// The user may not do this.
    Denied(String),
    /// This broker will not do this as long as it, or the options, are what they are.
    Refused(String),
}

impl CallError {
    /// As the error of a call that reads. What one broker refuses another one may give.
    pub(crate) fn of_reading(self) -> Error {
        match self {
            CallError::NotMade(message) | CallError::Unknown(message) | CallError::Refused(message) => {
                Error::Unavailable { message }
            }
            CallError::Denied(message) => Error::Denied { message },
        }
    }

    /// As the error of a start at which no broker did what was asked for: what all refuse is a mistake of
    /// whoever configured it.
    pub(crate) fn of_all(self) -> Error {
        match self {
            CallError::Denied(message) | CallError::Refused(message) => Error::Refused { message },
            error => error.of_reading(),
        }
    }

    /// The one of two failures of brokers that says what to do.
    pub(crate) fn or(self, later: CallError) -> CallError {
        match self {
            CallError::Denied(_) | CallError::Refused(_) => self,
            _ => later,
        }
    }
}

/// How connections are secured.
pub(crate) struct Security {
    tls: Option<Arc<ClientConfig>>,
    user: Option<User>,
    /// Nobody waits for an answer any more.
    closed: Arc<AtomicBool>,
}

impl Security {
    /// # Errors
    /// [`Error::Refused`] where the options cannot be used.
    pub(crate) fn new(options: &KafkaOptions) -> Result<Security, Error> {
        let refused = |reason: String| Error::Refused {
            message: format!("these connections cannot be made: {reason}"),
        };
        let tls = options.tls.as_ref().map(tls_config).transpose().map_err(refused)?;
        let is_plain = options.user.as_ref().is_some_and(|user| user.mechanism == SaslMechanism::Plain);
        if is_plain && tls.is_none() {
            let reason = "with saslMechanism PLAIN the password would be sent for everybody to read: set \
                          certificateAuthorityFile, or use SCRAM";
            return Err(refused(reason.to_owned()));
        }
        Ok(Security { tls, user: options.user.clone(), closed: Arc::default() })
    }

    /// Ends the calls on all connections, and makes no further one.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

fn tls_config(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&tls.certificate_authority) {
        let certificate = certificate.map_err(|error| format!("the certificate authority: {error}"))?;
        roots.add(certificate).map_err(|error| format!("the certificate authority: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in the file of the certificate authority".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some((certificates, key)) => {
            let certificates = CertificateDer::pem_slice_iter(certificates)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("the client certificate: {error}"))?;
            let key =
                PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the client key: {error}"))?;
            config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| format!("the client certificate: {error}"))?
        }
    };
    Ok(Arc::new(config))
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// A connection to a broker that answers one call after the other.
pub(crate) struct Connection {
    pub address: String,
    stream: Stream,
    correlation: i32,
    /// The call whose answer is due.
    due: Option<Api>,
    /// What is still to be sent of the call.
    output: Bytes,
    /// What has come of the answer, behind its length.
    input: Vec<u8>,
    filled: usize,
    used: Instant,
    /// When the broker wants to know again who this is.
    expires: Option<Instant>,
    closed: Arc<AtomicBool>,
}

impl Connection {
    /// Connects to a broker and authenticates.
    pub(crate) fn connect(
        address: &str,
        security: &Security,
        timeout: Duration,
    ) -> Result<Connection, CallError> {
        if security.closed.load(Ordering::Relaxed) {
            return Err(CallError::NotMade(CLOSED.to_owned()));
        }
        let deadline = Instant::now() + timeout;
        let socket = connect_socket(address, deadline).map_err(|error| failure(address, &error))?;
        let stream = match &security.tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let unusable = |error: &dyn std::fmt::Display| {
                    CallError::Refused(format!("TLS with {address}: {error}"))
                };
                let name = ServerName::try_from(host).map_err(|error| unusable(&error))?;
                let client =
                    ClientConnection::new(Arc::clone(config), name).map_err(|error| unusable(&error))?;
                Stream::Tls(Box::new(StreamOwned::new(client, socket)))
            }
        };
        let mut connection = Connection::over(address.to_owned(), stream, Arc::clone(&security.closed));
        connection.introduce(security, deadline).map_err(|error| match error {
            // Nothing that was sent so far changes anything.
            CallError::Unknown(message) => CallError::NotMade(message),
            error => error,
        })?;
        Ok(connection)
    }

    fn over(address: String, stream: Stream, closed: Arc<AtomicBool>) -> Connection {
        Connection {
            address,
            stream,
            correlation: 0,
            due: None,
            output: Bytes::new(),
            input: Vec::new(),
            filled: 0,
            used: Instant::now(),
            expires: None,
            closed,
        }
    }

    fn introduce(&mut self, security: &Security, deadline: Instant) -> Result<(), CallError> {
        let versions = self.exchange(wire::API_VERSIONS, &[], deadline)?;
        if let Some(api) = wire::missing_api(versions).map_err(|error| self.malformed(error))? {
            return Err(CallError::Refused(format!(
                "{} does not offer version {} of {}: Apache Kafka 4.1 or later is needed",
                self.address, api.version, api.name
            )));
        }
        let user = match &security.user {
            Some(user) => user,
            None => {
                // A listener without users refuses the request, and one with users returns which
                // mechanisms there are, where any other call would just end the connection.
                let (error, mut mechanisms) = self.handshake("", deadline)?;
                mechanisms.sort();
                return match error {
                    code::UNSUPPORTED_SASL_MECHANISM => Err(CallError::Refused(format!(
                        "{} asks for a user: set user, passwordFile and saslMechanism ({})",
                        self.address,
                        mechanisms.join(", ")
                    ))),
                    _ => Ok(()),
                };
            }
        };
        let name = user.mechanism.name();
        let address = self.address.clone();
        match self.handshake(name, deadline)? {
            (code::NONE, _) => self.authenticate(user, deadline),
            (code::UNSUPPORTED_SASL_MECHANISM, mechanisms) => {
                let mechanisms = mechanisms.join(", ");
                refused_at(&address, format!("saslMechanism {name} is not offered, only {mechanisms}"))
            }
            (code::ILLEGAL_SASL_STATE, _) => refused_at(
                &address,
                "this listener knows no users: leave user away, or use another port".to_owned(),
            ),
            (error, _) => refused_at(&address, error_name(error)),
        }
    }

    fn handshake(&mut self, mechanism: &str, deadline: Instant) -> Result<(i16, Vec<String>), CallError> {
        let answer = self.exchange(wire::SASL_HANDSHAKE, &wire::sasl_handshake(mechanism), deadline)?;
        wire::decode_handshake(answer).map_err(|error| self.malformed(error))
    }

    fn authenticate(&mut self, user: &User, deadline: Instant) -> Result<(), CallError> {
        let hash = match user.mechanism {
            SaslMechanism::Plain => {
                let message = format!("\0{}\0{}", user.name, user.password);
                return self.step(user, message.as_bytes(), deadline).map(|_| ());
            }
            SaslMechanism::ScramSha256 => Hash::Sha256,
            SaslMechanism::ScramSha512 => Hash::Sha512,
        };
        let mut random = [0; 18];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| CallError::NotMade("the operating system has no random numbers".to_owned()))?;
        let mut exchange = Exchange::new(hash, &user.name, &user.password, STANDARD.encode(random));
        let untrusted = |address: &str, error| CallError::Refused(format!("{address}: {error}"));
        let answer = self.step(user, &exchange.first(), deadline)?;
        let last = exchange.last(&answer).map_err(|error| untrusted(&self.address, error))?;
        let answer = self.step(user, &last, deadline)?;
        exchange.verify(&answer).map_err(|error| untrusted(&self.address, error))
    }

    /// A step of SASL.
    fn step(&mut self, user: &User, message: &[u8], deadline: Instant) -> Result<Bytes, CallError> {
        let answer = self.exchange(wire::SASL_AUTHENTICATE, &wire::sasl_authenticate(message), deadline)?;
        let answer = Authenticated::decode(answer).map_err(|error| self.malformed(error))?;
        if answer.error != code::NONE {
            let (address, name, mechanism) = (&self.address, &user.name, user.mechanism.name());
            let why = answer.message.unwrap_or_else(|| error_name(answer.error));
            let message = format!("{address} does not accept user {name:?} by {mechanism}: {why}");
            return Err(match answer.error {
                code::SASL_AUTHENTICATION_FAILED => CallError::Denied(message),
                _ => CallError::NotMade(message),
            });
        }
        if let Ok(lifetime @ 1..) = u64::try_from(answer.lifetime_ms) {
            self.expires = Some(Instant::now() + Duration::from_millis(lifetime / 10 * 9));
        }
        Ok(answer.bytes)
    }

    /// A call that is waited for.
    pub(crate) fn exchange(
        &mut self,
        api: Api,
        body: &[u8],
        deadline: Instant,
    ) -> Result<Decoder, CallError> {
        let started = Instant::now();
        self.send(api, body)?;
        self.receive(deadline)?.ok_or_else(|| self.silent(started.elapsed()))
    }

    /// That nothing has come for a while.
    pub(crate) fn silent(&self, time: Duration) -> CallError {
        CallError::Unknown(format!("{} has not answered for {} ms", self.address, time.as_millis()))
    }

    /// Makes a call, which is small. No answer is due.
    pub(crate) fn send(&mut self, api: Api, body: &[u8]) -> Result<(), CallError> {
        let started = Instant::now();
        self.begin(api, body);
        match self.send_rest(started + WRITE_TIMEOUT)? {
            true => Ok(()),
            false => Err(self.silent(started.elapsed())),
        }
    }

    /// Begins a call that may be large: [`Connection::send_rest`] sends it. No answer is due.
    pub(crate) fn begin(&mut self, api: Api, body: &[u8]) {
        self.correlation = self.correlation.wrapping_add(1);
        self.output = Encoder::frame(api, self.correlation, body).into();
        self.due = Some(api);
        self.input.clear();
        self.filled = 0;
    }

    /// Sends what is left of the call; whether that was all by `deadline`.
    pub(crate) fn send_rest(&mut self, deadline: Instant) -> Result<bool, CallError> {
        loop {
            let wait = self.wait_until(deadline)?;
            let sent = self.stream.socket().set_write_timeout(Some(wait)).and_then(|()| {
                match self.output.is_empty() {
                    true => self.stream.flush().map(|()| None),
                    false => self.stream.write(&self.output).map(Some),
                }
            });
            match sent {
                Ok(None) => return Ok(true),
                Ok(Some(0)) => {
                    return Err(CallError::Unknown(format!("{} takes nothing more", self.address)));
                }
                Ok(Some(sent)) => self.output.advance(sent),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(failure(&self.address, &error)),
            }
        }
    }

    /// The answer; none when it has not come by `deadline`.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Option<Decoder>, CallError> {
        loop {
            let expected = self.expected()?;
            if self.filled == expected && expected > 4 {
                return self.take().map(Some);
            }
            let wait = self.wait_until(deadline)?;
            self.stream
                .socket()
                .set_read_timeout(Some(wait))
                .map_err(|error| failure(&self.address, &error))?;
            self.input.resize(expected, 0);
            let buffer = self.input.get_mut(self.filled..).unwrap_or_default();
            match self.stream.read(buffer) {
                Ok(0) => {
                    return Err(CallError::Unknown(format!("{} has closed the connection", self.address)));
                }
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(failure(&self.address, &error)),
            }
        }
    }

    /// How long the socket is waited for.
    fn wait_until(&self, deadline: Instant) -> Result<Duration, CallError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(CallError::Unknown(CLOSED.to_owned()));
        }
        let wait = deadline.saturating_duration_since(Instant::now());
        Ok(wait.clamp(Duration::from_millis(1), CLOSED_CHECK))
    }

    /// Bytes of the answer with its length, as far as that is known.
    fn expected(&self) -> Result<usize, CallError> {
        let Some(length) = self.input.first_chunk::<4>().filter(|_| self.filled >= 4) else { return Ok(4) };
        match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length @ 4..=MAX_ANSWER_BYTES) => Ok(4 + length),
            _ if length[0] == TLS_ALERT && matches!(self.stream, Stream::Plain(_)) => {
                Err(CallError::Refused(format!("{} speaks TLS: set certificateAuthorityFile", self.address)))
            }
            _ => Err(CallError::Unknown(format!("{} does not answer as Kafka does", self.address))),
        }
    }

    fn take(&mut self) -> Result<Decoder, CallError> {
        let mut answer = Decoder(Bytes::from(std::mem::take(&mut self.input)));
        self.filled = 0;
        self.used = Instant::now();
        let api = self.due.take();
        let header = |answer: &mut Decoder| {
            answer.i32()?;
            let correlation = answer.i32()?;
            if api.is_some_and(|api| api.is_flexible) {
                answer.tags()?;
            }
            Ok(correlation)
        };
        match header(&mut answer) {
            Ok(correlation) if correlation == self.correlation => Ok(answer),
            Ok(_) => Err(CallError::Unknown(format!("{} answers another call", self.address))),
            Err(error) => Err(self.malformed(error)),
        }
    }

    pub(crate) fn malformed(&self, _: Malformed) -> CallError {
        CallError::Unknown(format!("{} gave an answer that is malformed", self.address))
    }

    /// Bytes of the answer that have come.
    pub(crate) fn received(&self) -> usize {
        self.filled
    }

    /// Whether another call can be made, as far as can be seen.
    pub(crate) fn is_usable(&self) -> bool {
        let now = Instant::now();
        if self.due.is_some() || self.expires.is_some_and(|expires| expires <= now) {
            return false;
        }
        now.duration_since(self.used) < IDLE || self.is_silent()
    }

    /// Whether nothing has come, the end of the connection included.
    fn is_silent(&self) -> bool {
        let socket = self.stream.socket();
        let is_silent = |socket: &TcpStream| -> io::Result<bool> {
            socket.set_nonblocking(true)?;
            let peeked = socket.peek(&mut [0]);
            socket.set_nonblocking(false)?;
            Ok(peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
        };
        is_silent(socket).unwrap_or(false)
    }
}

fn refused_at<T>(address: &str, what: String) -> Result<T, CallError> {
    Err(CallError::Refused(format!("{address}: {what}")))
}

fn connect_socket(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        let wait = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&candidate, wait) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// What an error of a connection means. One of TLS does not pass by itself.
fn failure(address: &str, error: &io::Error) -> CallError {
    let is_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text.push_str(": ");
            text.push_str(&next_text);
        }
        cause = next.source();
    }
    if is_tls {
        CallError::Refused(format!("TLS with {address}: {text}"))
    } else {
        CallError::Unknown(format!("{address}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// More than the operating system takes for it: what was sent is not sent again, nor given up.
    #[test]
    fn a_large_call_goes_on_where_it_was_when_the_broker_takes_more() {
        const BYTES: usize = 64 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stream = Stream::Plain(connect_socket(&address, Instant::now() + CONNECT_TIMEOUT).unwrap());
        let (mut broker, _) = listener.accept().unwrap();
        let mut connection = Connection::over(address, stream, Arc::default());
        let body: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        connection.begin(wire::PRODUCE, &body);
        let frame = connection.output.clone();
        for _ in 0..2 {
            assert!(!connection.send_rest(Instant::now()).unwrap(), "nobody takes it");
        }
        assert!(!connection.is_usable());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut received = vec![0; frame.len()];
                broker.read_exact(&mut received).unwrap();
                assert!(received == frame);
            });
            while !connection.send_rest(Instant::now() + Duration::from_millis(10)).unwrap() {}
        });
    }
}
