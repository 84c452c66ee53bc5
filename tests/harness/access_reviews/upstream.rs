//! A kube-apiserver with its etcd, both given by the paths of their binaries. Nothing but recording needs
//! them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plinth_benches::api::client::Endpoint;
use plinth_benches::api::server::free_port;
use tempfile::TempDir;

use super::client::Client;
use super::front_proxy::FrontProxy;
use super::replay::Replay;
use super::webhook::Webhook;

/// The two processes. Dropping this kills them and removes their data.
pub struct Upstream {
    processes: Vec<Child>,
    endpoint: Endpoint,
    dir: TempDir,
}

impl Upstream {
    /// Starts both, with these further flags of kube-apiserver, and waits until it is ready.
    ///
    /// # Errors
    /// When they do not start or do not become ready; with the last lines of kube-apiserver's log.
    pub async fn start(
        kube_apiserver: &Path,
        etcd: &Path,
        flags: &[String],
    ) -> Result<(Upstream, Webhook), String> {
        let dir = TempDir::new().map_err(|error| error.to_string())?;
        let at = dir.path();
        let port = || free_port().map_err(|error| error.to_string());
        let (client, peer, secure) = (port()?, port()?, port()?);
        let webhook = Webhook::start().await;
        let proxy = FrontProxy::new(at);
        let write = |name: &str, text: &str| -> Result<PathBuf, String> {
            let path = at.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        };
        let (certificate, key) = proxy.signed("kube-apiserver", &["127.0.0.1", "localhost"]);
        let (serving, serving_key) = (write("serving.crt", &certificate)?, write("serving.key", &key)?);
        // A certificate, since kube-apiserver reads no public key out of a PKCS #8 private one.
        let (account, account_key) = proxy.signed("accounts", &[]);
        let (account, account_key) = (write("sa.crt", &account)?, write("sa.key", &account_key)?);
        let client_url = format!("http://127.0.0.1:{client}");
        let mut command = Command::new(etcd);
        command.arg("--data-dir").arg(at.join("etcd"));
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"));
        command.arg("--unsafe-no-fsync");
        let mut processes = vec![spawn(&mut command, &at.join("etcd.log"))?];
        let mut command = Command::new(kube_apiserver);
        command.args([
            format!("--etcd-servers={client_url}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={secure}"),
            format!("--tls-cert-file={}", serving.display()),
            format!("--tls-private-key-file={}", serving_key.display()),
            format!("--service-account-signing-key-file={}", account_key.display()),
            format!("--service-account-key-file={}", account.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        ]);
        command.args(proxy.flags(&webhook.kubeconfig())).args(flags);
        processes.push(spawn(&mut command, &at.join("kube-apiserver.log"))?);
        let authority = std::fs::read(proxy.authority()).map_err(|error| error.to_string())?;
        let endpoint = Endpoint::new(&format!("127.0.0.1:{secure}"), &authority, proxy.identity())
            .map_err(|error| error.to_string())?;
        let mut upstream = Upstream { processes, endpoint, dir };
        upstream.ready().await?;
        Ok((upstream, webhook))
    }

    async fn ready(&mut self) -> Result<(), String> {
        let mut client = Client::new(self.endpoint.clone());
        let headers = [
            ("X-Remote-User".to_owned(), "recorder".to_owned()),
            ("X-Remote-Group".to_owned(), "system:masters".to_owned()),
        ];
        for _ in 0..1200 {
            let answer = client.send("GET", "/readyz", &headers, &[], false).await;
            if answer.is_ok_and(|answer| answer.code == 200) {
                return Ok(());
            }
            client = Client::new(self.endpoint.clone());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(self.dir.path().join("kube-apiserver.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        Err(format!(
            "kube-apiserver is not ready:\n{}",
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        ))
    }

    /// Makes a recording's requests there.
    pub fn replay(&self, webhook: Webhook) -> Replay {
        let mut replay = Replay::new(Client::new(self.endpoint.clone()), webhook);
        replay.settles_within = Duration::from_secs(3);
        replay
    }
}

fn spawn(command: &mut Command, log: &Path) -> Result<Child, String> {
    let open = || File::options().create(true).append(true).open(log);
    let (out, error) = (open().map_err(|e| e.to_string())?, open().map_err(|e| e.to_string())?);
    let child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn();
    child.map_err(|error| format!("{}: {error}", command.get_program().display()))
}

impl Drop for Upstream {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
