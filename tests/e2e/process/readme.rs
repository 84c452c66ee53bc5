//! The tour of the README, line by line as written.

use std::process::{Command, Stdio};

use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::TestServer;

/// The lines of the fenced block that begins with "```sh tour".
fn tour() -> Vec<&'static str> {
    let readme = include_str!("../../../README.md");
    let lines = readme.lines().skip_while(|line| *line != "```sh tour").skip(1);
    lines.take_while(|line| *line != "```").collect()
}

#[test]
fn the_tour_is_found() {
    let tour = tour();
    assert!(tour.len() > 10, "{tour:?}");
    assert!(tour[0].starts_with("export KUBECONFIG="), "{tour:?}");
}

#[tokio::test]
async fn every_line_of_the_tour_works() {
    let server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("the README's tour", server.kubeconfig()) else { return };
    // As a reader would: one shell, in the directory that has ./data.
    let data = server.data();
    let mut script = String::from("set -eu\nkubectl() { command \"$KUBECTL\" \"$@\"; }\n");
    for line in tour() {
        script.push_str(&format!("echo {}\n{line}\n", quoted(&format!("$ {line}"))));
    }
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(data.parent().expect("the directory of ./data"))
        .env("KUBECTL", kubectl.program())
        .env("HOME", kubectl.home())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for expected in ["configmap/greeting created", "text: hello", "deployment.apps/web scaled", "tier=front"]
    {
        assert!(stdout.contains(expected), "{expected} in\n{stdout}");
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
