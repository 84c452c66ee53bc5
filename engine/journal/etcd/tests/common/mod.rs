//! Starts real members of etcd on loopback. The program is that of the environment variable `PLINTH_ETCD`.

#![allow(dead_code)] // each program of tests uses a part of it
#![allow(clippy::disallowed_methods)] // plain threads, no async code

#[path = "../../../tests/authority/mod.rs"]
mod authority;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use authority::Authority;
use plinth_journal::record::ClusterId;
use plinth_journal::{Founding, Journal};
use plinth_journal_etcd::{EtcdJournal, EtcdOptions, Tls};

pub(crate) const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

/// Members of etcd, which end with it.
pub(crate) struct Members {
    program: PathBuf,
    members: Vec<(Child, Vec<String>)>,
    clients: Vec<u16>,
    dir: tempfile::TempDir,
    authority: Option<Authority>,
}

/// Options of clients of the members.
impl Authority {
    /// What a client needs, with a certificate that ends with a year.
    pub(crate) fn dated_client(&self, year: i32) -> Tls {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Tls {
            certificate_authority: self.certificate.clone().into_bytes(),
            identity: Some((certificate.into_bytes(), key.serialize_pem().into_bytes())),
        }
    }

    /// What a client needs that the authority has signed.
    pub(crate) fn client(&self) -> Tls {
        let (certificate, key) = self.sign("client");
        Tls {
            certificate_authority: self.certificate.clone().into_bytes(),
            identity: Some((certificate.into_bytes(), key.into_bytes())),
        }
    }
}

/// The program, or a line that says why a test was skipped.
pub(crate) fn program() -> Option<PathBuf> {
    let program = std::env::var_os("PLINTH_ETCD").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: PLINTH_ETCD names no program of etcd");
    }
    program
}

/// A port that nothing listens on, another one in each call. Outgoing connections do not get these, nor do
/// the programs that scripts and other tests start.
fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 11_000..14_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_mul(61);
    let mut ports = (0..count).map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        u16::try_from(PORTS.start + first.wrapping_add(step) % count).unwrap()
    });
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

impl Members {
    pub(crate) fn start(program: PathBuf, count: usize) -> Members {
        Members::start_with(program, count, None, &[])
    }

    /// Members with these flags.
    pub(crate) fn with_flags(program: PathBuf, count: usize, flags: &[&str]) -> Members {
        Members::start_with(program, count, None, flags)
    }

    /// Members that ask their clients for certificates of the authority.
    pub(crate) fn with_tls(program: PathBuf, count: usize) -> Members {
        Members::start_with(program, count, Some(Authority::new()), &[])
    }

    fn start_with(program: PathBuf, count: usize, authority: Option<Authority>, flags: &[&str]) -> Members {
        let dir = tempfile::tempdir().unwrap();
        let scheme = if authority.is_some() { "https" } else { "http" };
        let tls: Vec<String> =
            authority.iter().flat_map(|authority| tls_arguments(dir.path(), authority)).collect();
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}")).collect();
        let arguments = |n: usize, (client, peer): (u16, u16)| {
            let data = dir.path().join(format!("m{n}"));
            let mut arguments = vec![
                format!("--name=m{n}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--advertise-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster={}", peers.join(",")),
                "--log-level=error".to_owned(),
                "--snapshot-count=500".to_owned(),
            ];
            arguments.extend(tls.iter().cloned());
            arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
            arguments
        };
        let members = ports.iter().enumerate().map(|(n, ports)| {
            let arguments = arguments(n, *ports);
            (spawn(&program, &arguments), arguments)
        });
        let members = members.collect();
        let clients = ports.iter().map(|(client, _)| *client).collect();
        Members { program, members, clients, dir, authority }
    }

    pub(crate) fn authority(&self) -> &Authority {
        self.authority.as_ref().unwrap()
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let members: Vec<_> = (0..self.clients.len()).map(|member| self.address(member)).collect();
        let mut options = EtcdOptions::parse(&format!("etcd://{}/plinth", members.join(","))).unwrap();
        options.tls = self.authority.as_ref().map(Authority::client);
        options
    }

    /// Calls etcd's JSON gateway.
    pub(crate) fn call(&self, path: &str, body: &str, token: Option<&str>) -> String {
        self.call_at(0, path, body, token)
    }

    /// Calls the JSON gateway of a member.
    pub(crate) fn call_at(&self, member: usize, path: &str, body: &str, token: Option<&str>) -> String {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "--max-time", "10", "-d", body]);
        curl.args(token.map(|token| format!("-HAuthorization: {token}")));
        let url = format!("http://127.0.0.1:{}/v3/{path}", self.clients[member]);
        let output = curl.arg(url).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{path}: {text} {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// A number among a member's metrics.
    pub(crate) fn metric(&self, member: usize, name: &str) -> u64 {
        let url = format!("http://127.0.0.1:{}/metrics", self.clients[member]);
        let output = Command::new("curl").args(["-sf", "--max-time", "10", &url]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        number.expect("the member has this metric")
    }

    /// Waits until the members answer, without writing anything.
    pub(crate) fn wait(&self) {
        let forbidden = Founding::Forbidden;
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = EtcdJournal::connect(&self.options(), CLUSTER, forbidden).and_then(|j| j.end())
        {
            if !error.is_transient() {
                return;
            }
            assert!(Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> usize {
        let field = |text: &str, name: &str| -> String {
            let (_, rest) = text.split_once(&format!("\"{name}\":\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let leads = |member: &usize| {
            let status = self.call_at(*member, "maintenance/status", "{}", None);
            field(&status, "member_id") == field(&status, "leader")
        };
        (0..self.members.len()).find(leads).expect("one of them leads")
    }

    /// A client, once the members answer.
    pub(crate) fn connect(&self) -> EtcdJournal {
        self.connect_with(&self.options())
    }

    pub(crate) fn connect_with(&self, options: &EtcdOptions) -> EtcdJournal {
        let journal = EtcdJournal::connect(options, CLUSTER, Founding::Allowed).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = journal.end() {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        journal
    }

    pub(crate) fn kill(&mut self, member: usize) {
        let child = &mut self.members[member].0;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends all members and starts them again with the same flags and nothing on disk.
    pub(crate) fn wipe(&mut self) {
        self.replace(self.members.len(), None);
    }

    /// Ends all members and starts the first of them again with nothing on disk and one more flag.
    pub(crate) fn replace(&mut self, started: usize, flag: Option<&str>) {
        for member in 0..self.members.len() {
            self.kill(member);
            std::fs::remove_dir_all(self.dir.path().join(format!("m{member}"))).unwrap();
            self.members[member].1.extend(flag.map(str::to_owned));
        }
        for member in 0..started {
            self.restart(member);
        }
        self.wait();
    }

    /// Flips a bit of a text in the files of a member, which is killed for it, and waits until it answers
    /// again.
    pub(crate) fn damage(&mut self, member: usize, text: &[u8]) {
        self.flip(member, text);
        self.connect_with(&EtcdOptions { members: vec![self.address(member)], ..self.options() });
    }

    /// Starts a member with nothing on disk, as an etcd of its own at the same address.
    pub(crate) fn empty(&mut self, member: usize) {
        self.kill(member);
        std::fs::remove_dir_all(self.dir.path().join(format!("m{member}"))).unwrap();
        let peer = self.members[member]
            .1
            .iter()
            .find_map(|argument| argument.strip_prefix("--initial-advertise-peer-urls=").map(str::to_owned));
        let cluster = format!("--initial-cluster=m{member}={}", peer.unwrap());
        self.members[member].1.extend([cluster, "--initial-cluster-token=another".to_owned()]);
        self.restart(member);
    }

    /// Flips a bit of a text in the files of a member, and starts it again.
    pub(crate) fn flip(&mut self, member: usize, text: &[u8]) {
        self.flip_bits(member, text, 0, 1);
    }

    /// Flips bits of the byte at a place of a text in the files of a member, and starts it again.
    pub(crate) fn flip_bits(&mut self, member: usize, text: &[u8], at: usize, bits: u8) {
        let path = self.dir.path().join(format!("m{member}/member/snap/db"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let places = |bytes: &[u8]| -> Vec<usize> {
            bytes.windows(text.len()).enumerate().filter(|(_, at)| *at == text).map(|(at, _)| at).collect()
        };
        // It is written there some time after it was answered.
        while places(&std::fs::read(&path).unwrap()).is_empty() {
            assert!(Instant::now() < deadline, "the text is not in the file");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.kill(member);
        let mut bytes = std::fs::read(&path).unwrap();
        for place in places(&bytes) {
            bytes[place + at] ^= bits;
        }
        std::fs::write(&path, bytes).unwrap();
        self.restart(member);
    }

    /// Waits until a member answers requests for which it needs the others.
    pub(crate) fn wait_for(&self, member: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let url = format!("http://127.0.0.1:{}/health", self.clients[member]);
        let is_up = || {
            Command::new("curl")
                .args(["-sf", "-o", "/dev/null", "--max-time", "5", &url])
                .status()
                .unwrap()
                .success()
        };
        while !is_up() {
            assert!(Instant::now() < deadline, "{url}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn address(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.clients[member])
    }

    pub(crate) fn restart(&mut self, member: usize) {
        let arguments = self.members[member].1.clone();
        self.members[member].0 = spawn(&self.program, &arguments);
    }

    /// Kills all members, and starts them again with one more flag.
    pub(crate) fn restart_all_with(&mut self, flag: &str) {
        for member in 0..self.members.len() {
            self.kill(member);
            self.members[member].1.push(flag.to_owned());
        }
        (0..self.members.len()).for_each(|member| self.restart(member));
    }

    pub(crate) fn signal(&self, member: usize, signal: &str) {
        let id = self.members[member].0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for (child, _) in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The flags that make a member serve TLS, whose files are put into a directory.
fn tls_arguments(dir: &Path, authority: &Authority) -> Vec<String> {
    let (certificate, key) = authority.sign("member");
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    vec![
        format!("--cert-file={}", write("member.crt", &certificate)),
        format!("--key-file={}", write("member.key", &key)),
        format!("--trusted-ca-file={}", write("ca.crt", &authority.certificate)),
        "--client-cert-auth=true".to_owned(),
    ]
}

fn spawn(program: &PathBuf, arguments: &[String]) -> Child {
    Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
