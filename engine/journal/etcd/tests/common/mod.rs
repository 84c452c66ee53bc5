//! Starts real members of etcd on loopback. The program is that of the environment variable `PLINTH_ETCD`.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plinth_journal::record::ClusterId;
use plinth_journal::Journal;
use plinth_journal_etcd::{EtcdJournal, EtcdOptions};

pub const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

/// Members of etcd, which end with it.
pub struct Members {
    program: PathBuf,
    members: Vec<(Child, Vec<String>)>,
    clients: Vec<u16>,
    _dir: tempfile::TempDir,
}

/// The program, or a line that says why a test was skipped.
pub fn program() -> Option<PathBuf> {
    let program = std::env::var_os("PLINTH_ETCD").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: PLINTH_ETCD names no program of etcd");
    }
    program
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Members {
    pub fn start(program: PathBuf, count: usize) -> Members {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}")).collect();
        let arguments = |n: usize, (client, peer): (u16, u16)| {
            let data = dir.path().join(format!("m{n}"));
            vec![
                format!("--name=m{n}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls=http://127.0.0.1:{client}"),
                format!("--advertise-client-urls=http://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster={}", peers.join(",")),
                "--log-level=error".to_owned(),
                "--snapshot-count=500".to_owned(),
            ]
        };
        let members = ports.iter().enumerate().map(|(n, ports)| {
            let arguments = arguments(n, *ports);
            (spawn(&program, &arguments), arguments)
        });
        let members = members.collect();
        Members { program, members, clients: ports.iter().map(|(client, _)| *client).collect(), _dir: dir }
    }

    pub fn options(&self) -> EtcdOptions {
        let members: Vec<_> = self.clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        EtcdOptions::parse(&format!("etcd://{}/plinth", members.join(","))).unwrap()
    }

    /// A client, once the members answer.
    pub fn connect(&self) -> EtcdJournal {
        let journal = EtcdJournal::connect(&self.options(), CLUSTER).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = journal.end() {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        journal
    }

    pub fn kill(&mut self, member: usize) {
        let child = &mut self.members[member].0;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn restart(&mut self, member: usize) {
        let arguments = self.members[member].1.clone();
        self.members[member].0 = spawn(&self.program, &arguments);
    }

    pub fn signal(&self, member: usize, signal: &str) {
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

fn spawn(program: &PathBuf, arguments: &[String]) -> Child {
    Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
