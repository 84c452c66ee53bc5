//! A Kubernetes API server inside a program of your own.
//!
//! ```sh
//! cargo run --release -p plinth-server --example embedded -- ./data
//! kubectl --kubeconfig ./data/admin.kubeconfig get namespaces
//! ```

use std::error::Error;

use plinth_server::cli::{runtime, start, ServeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let data_dir = std::env::args().nth(1).ok_or("argument: a directory for the data")?;

    // The options are the flags of `plinth serve`, `plinth help serve` lists them. Port 0 is any free port.
    let options = ServeOptions::from_arguments([
        "--data-dir",
        &data_dir,
        "--secure-port",
        "0",
        // Controllers can be switched off by name, as in kube-controller-manager.
        "--controllers",
        "*,-root-ca-certificate-publisher-controller",
    ])?;

    // The server needs a multi-threaded Tokio runtime; `runtime` builds the one that the `plinth` program
    // uses. A program that has one already calls `start` there, if its threads have stacks of 32 MiB: with
    // less, a deeply nested object can end the process (docs/embedding.md).
    runtime()?.block_on(async {
        // Opens or creates the data directory, and returns once the server is ready.
        let server = start(options).await?;
        println!("serving https://{}", server.address());
        println!("administrator's credentials: {}", server.kubeconfig().display());

        // The server works in the background while the program does its own work, here until Ctrl-C. After a
        // failure of the storage it refuses writes: the process should end, and nothing that was acknowledged
        // is lost.
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted?,
            failure = server.failed() => return Err(failure.to_string().into()),
        }

        // Finishes requests, ends watches properly, and closes the store.
        server.stop().await?;
        Ok(())
    })
}
