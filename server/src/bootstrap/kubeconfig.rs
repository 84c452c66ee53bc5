//! The kubeconfig file that makes `kubectl` work at once.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;

/// A kubeconfig for one cluster and one user, credentials inline. `server` is the URL, the rest PEM.
pub fn render(server: &str, user: &str, ca: &str, cert: &str, key: &str) -> String {
    let [ca, cert, key] = [ca, cert, key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: plinth
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: plinth
  context:
    cluster: plinth
    user: {user}
current-context: plinth
"
    )
}
