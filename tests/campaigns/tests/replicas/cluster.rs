//! Three replicas over three members of a journal, each a process that can be killed, stopped, cut off,
//! deprived of its disk's room, and given another time.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plinth_benches::api::client::Endpoint;
use plinth_benches::api::server::{Launch, Server, READY_WITHIN};
use plinth_campaigns::server::launch;
use tempfile::TempDir;

use super::network::Network;

/// Replicas, and members; nodes are numbered replicas first.
pub(super) const SIDE: usize = 3;
/// Room of each node's disk, where it has one of its own: several times what [`CLIENTS`] write within
/// [`HISTORY_MINUTES`].
const DISK: &str = "size=1g";
/// So many clients write as much as the disk has room for while history is kept for so long. Fewer have
/// longer: a watch that cannot go on for that time loses history, which is no failure, and on a slow machine
/// all members of the journal may be away for minutes.
const CLIENTS: u64 = 64;
const HISTORY_MINUTES: u64 = 2;

/// Everything that runs.
pub(super) struct Cluster {
    dir: TempDir,
    /// What the members are, as `scripts/journal` names it.
    kind: String,
    url: String,
    /// Absent where the test has no namespaces of its own.
    pub network: Option<Network>,
    replicas: Vec<Server>,
    /// Replicas that this test has killed and not started again.
    killed: [bool; SIDE],
}

impl Cluster {
    /// Starts it for so many clients; `None`, said aloud, where no program of the members is named.
    pub(super) async fn start(clients: u64) -> Option<Cluster> {
        let kind = std::env::var("PLINTH_JOURNAL").unwrap_or_else(|_| "etcd".to_owned());
        let variable = format!("PLINTH_{}", kind.to_uppercase());
        if std::env::var_os(&variable).is_none() {
            eprintln!("skipped: {variable} names no program of {kind}");
            return None;
        }
        let network = Network::create(2 * SIDE);
        if network.is_none() {
            eprintln!("without network namespaces: no links are taken away, no disks are filled");
        }
        let parent =
            ["/dev/shm", "/tmp"].into_iter().find(|dir| Path::new(dir).is_dir()).expect("a directory");
        let dir = TempDir::new_in(parent).expect("directory");
        let mut cluster =
            Cluster { dir, kind, url: String::new(), network, replicas: Vec::new(), killed: [false; SIDE] };
        for node in 0..2 * SIDE {
            fs::create_dir_all(cluster.root(node)).expect("directory");
            if cluster.network.is_some() {
                let mut mount = Command::new("mount");
                succeeds(mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(cluster.root(node)));
            }
        }
        cluster.url = cluster.start_members();
        for replica in 0..SIDE {
            let root = cluster.root(replica);
            File::create(root.join("clock")).and_then(|mut file| file.write_all(&[0; 8])).expect("clock");
            if let Some(first) = cluster.replicas.first() {
                let mut join = launch().command(["join", "--kubeconfig"]);
                succeeds(join.arg(first.kubeconfig()).arg("--data-dir").arg(root.join("data")));
            }
            let minutes = HISTORY_MINUTES * (CLIENTS / clients.max(1)).max(1);
            let retention = format!("--history-retention={minutes}m");
            let arguments = ["--journal", &cluster.url, &retention, "--compaction-interval=10s"];
            let server = cluster.launch(replica).start(&root, &arguments).await;
            let mut server = server.expect("start of a replica");
            server.ready(READY_WITHIN).await.expect("ready replica");
            cluster.replicas.push(server);
        }
        Some(cluster)
    }

    fn root(&self, node: usize) -> PathBuf {
        match node.checked_sub(SIDE) {
            None => self.dir.path().join(format!("r{node}")),
            Some(member) => self.dir.path().join(format!("journal/m{member}")),
        }
    }

    fn launch(&self, replica: usize) -> Launch {
        let launch =
            launch().env("LD_PRELOAD", &interposer()).env("PLINTH_CLOCK", &self.root(replica).join("clock"));
        let name = Network::name(replica);
        match self.network {
            None => launch,
            Some(_) => launch.on_host(Network::host(replica), &["ip", "netns", "exec", &name]),
        }
    }

    /// Starts the members that do not run; returns the URL of the journal. One that was killed, or whose disk
    /// was full, may end a moment after it was found running: the next attempt starts it.
    fn start_members(&self) -> String {
        const ATTEMPTS: usize = 3;
        let mut output = self.journal("start");
        for _ in 1..ATTEMPTS {
            if output.status.success() {
                break;
            }
            eprintln!("started again: {}", String::from_utf8_lossy(&output.stderr).trim());
            self.print_logs_of_members();
            output = self.journal("start");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the members of the journal do not start: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Prints why members have ended: their directories are removed after the test.
    fn print_logs_of_members(&self) {
        for node in SIDE..2 * SIDE {
            let log = fs::read(self.root(node).join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(12)..];
            eprintln!("--- the last lines of member {}:\n{}", node - SIDE, last.join("\n"));
        }
    }

    fn journal(&self, command: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/journal");
        let mut script = Command::new(script);
        script.args([self.kind.as_str(), command]).arg(self.dir.path().join("journal"));
        if self.network.is_some() {
            let members = SIDE..2 * SIDE;
            let hosts: Vec<String> = members.clone().map(|node| Network::host(node).to_string()).collect();
            let names: Vec<String> = members.map(Network::name).collect();
            script
                .env("PLINTH_JOURNAL_HOSTS", hosts.join(" "))
                .env("PLINTH_JOURNAL_NAMESPACES", names.join(" "));
        }
        script.output().expect("the script runs")
    }

    /// Where the replicas are.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        self.replicas.iter().map(|replica| replica.endpoint().expect("endpoint")).collect()
    }

    /// The process of a replica, by its number.
    pub(super) fn replica(&self, replica: usize) -> &Server {
        &self.replicas[replica]
    }

    fn process(&self, node: usize) -> Option<u32> {
        if node < SIDE {
            return Some(self.replicas[node].pid());
        }
        fs::read_to_string(self.root(node).join("pid")).ok()?.trim().parse().ok()
    }

    /// Sends a signal to a node's process, which may have ended.
    pub(super) fn signal(&self, node: usize, signal: &str) {
        if let Some(process) = self.process(node) {
            let _ = Command::new("kill").args([signal, &process.to_string()]).output();
        }
    }

    /// Kills a node's process.
    pub(super) fn kill(&mut self, node: usize) {
        match self.replicas.get_mut(node) {
            Some(replica) => {
                replica.kill().expect("killed replica");
                self.killed[node] = true;
            }
            None => self.signal(node, "-KILL"),
        }
    }

    /// Starts what does not run; why a replica had ended that was not killed.
    pub(super) async fn revive(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.start_members();
        for (replica, killed) in self.replicas.iter_mut().zip(&mut self.killed) {
            if let Some(why) = replica.ended() {
                if !std::mem::take(killed) {
                    ended.push(format!("{why}\n{}", replica.log().tail(5)));
                }
                replica.restart().await.expect("the replica starts again");
            }
        }
        ended
    }

    /// Waits until every replica answers that it is ready.
    pub(super) async fn ready(&mut self) {
        for replica in &mut self.replicas {
            replica.ready(READY_WITHIN).await.expect("ready replica");
        }
    }

    /// Fills a node's disk.
    pub(super) fn fill(&self, node: usize) {
        let mut file = File::create(self.root(node).join("filler")).expect("a file");
        let block = vec![0u8; 1 << 20];
        while file.write_all(&block).is_ok() {}
    }

    /// Gives the room back.
    pub(super) fn empty(&self, node: usize) {
        let _ = fs::remove_file(self.root(node).join("filler"));
    }

    /// Moves a replica's clock to that many milliseconds beside the true time.
    pub(super) fn set_clock(&self, replica: usize, millis: i64) {
        // Not a new file: the process has this one in its memory.
        let file = File::options().write(true).open(self.root(replica).join("clock"));
        file.and_then(|mut file| file.write_all(&millis.to_le_bytes())).expect("clock");
    }

    /// Ends the replicas as they are ended in operation, and returns what their logs have of panics.
    pub(super) async fn stop(mut self) -> Vec<String> {
        let mut panics = Vec::new();
        for replica in &mut self.replicas {
            replica.terminate().await.expect("clean end");
            panics.extend(plinth_campaigns::server::TestServer::panics(&replica.log()));
        }
        panics
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for replica in &self.replicas {
                eprintln!("--- the last lines of a replica:\n{}", replica.log().tail(20));
            }
            self.print_logs_of_members();
        }
        self.replicas.clear();
        for node in SIDE..2 * SIDE {
            // One that is stopped does not end by SIGTERM.
            self.signal(node, "-KILL");
        }
        if self.network.is_some() {
            for node in 0..2 * SIDE {
                // Lazily: the processes may still end.
                let _ = Command::new("umount").arg("-l").arg(self.root(node)).output();
            }
        }
    }
}

/// The interposer, which cargo has built beside this test.
fn interposer() -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    let library = test.with_file_name("libplinth_interposer.so");
    assert!(library.is_file(), "no interposer at {}", library.display());
    library
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
