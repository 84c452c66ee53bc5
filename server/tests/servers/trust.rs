//! Replicas with different authorities: none takes back what another one has published.

use std::path::Path;

use plinth_benches::api::client::Connection;
use plinth_journal::simulated::SimulatedJournal;
use plinth_server::cli::{runtime, JoinOptions, Running};

use super::replicas::{connect, get, json, serve, try_join, try_serve};

const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

async fn serve_with(path: &Path, journal: &SimulatedJournal, client: u16, flags: &[String]) -> Running {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    try_serve(path, journal, client, &flags).await.unwrap()
}

async fn published(client: &mut Connection) -> serde_json::Value {
    json(&get(client, TRUST).await)
}

#[test]
fn replicas_unite_the_authorities_that_they_trust() {
    let dir = tempfile::tempdir().unwrap();
    let [first_path, second_path] = ["1", "2"].map(|name| dir.path().join(name));
    let authority = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
    };
    let (old, new, front) = (authority("old"), authority("new"), authority("front"));
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(3);
        let founder = serve(&first_path, &journal, 1).await;
        let kubeconfig = Some(founder.kubeconfig().to_owned());
        try_join(JoinOptions { kubeconfig, data_dir: second_path.clone(), ..JoinOptions::default() })
            .await
            .unwrap();
        founder.stop().await.unwrap();

        // Each accepts the certificates of the cluster's own authority, too.
        let own = std::fs::read_to_string(first_path.join("pki/ca.crt")).unwrap();
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let of_first = [format!("--client-ca-file={}", file("old.crt", format!("{own}{old}")))];
        let of_second = [
            format!("--client-ca-file={}", file("new.crt", format!("{own}{new}"))),
            format!("--requestheader-client-ca-file={}", file("front.crt", front.clone())),
            "--requestheader-allowed-names=front".to_owned(),
        ];
        let first = serve_with(&first_path, &journal, 1, &of_first).await;
        let second = serve_with(&second_path, &journal, 2, &of_second).await;
        let shown = published(&mut connect(&first).await).await;
        let bundle = shown["data"]["client-ca-file"].as_str().unwrap();
        assert!([&own, &old, &new].iter().all(|text| bundle.contains(*text)), "{bundle}");
        assert_eq!(bundle.matches("BEGIN").count(), 3);
        assert_eq!(shown["data"]["requestheader-client-ca-file"], front);
        assert_eq!(shown["data"]["requestheader-allowed-names"], r#"["front"]"#);

        // One that starts with less changes nothing.
        first.stop().await.unwrap();
        let first = serve_with(&first_path, &journal, 1, &of_first).await;
        assert_eq!(published(&mut connect(&second).await).await, shown);
        first.stop().await.unwrap();
        second.stop().await.unwrap();
    });
}
