//! `plinth convert`: converts an object between JSON, YAML, protobuf and CBOR.

use std::io::{self, Read, Write};

use clap::{Args, ValueEnum};
use plinth_codec::convert::{self, ConvertError, Format};

/// Maximum size of the input, in bytes: well over what a server stores.
const INPUT_MAX: u64 = 64 << 20;

/// Options of `plinth convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl get deployment web -o yaml | plinth convert --to json\n  etcdctl get /registry/pods/default/web --print-value-only | plinth convert --to yaml\n\nReads one object from standard input, in any of the four encodings, and writes it to standard output."
)]
pub struct ConvertOptions {
    /// Encoding to write
    #[arg(long, value_name = "FORMAT")]
    pub to: TargetEncoding,
}

/// Encodings that an object is converted to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TargetEncoding {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Kubernetes protobuf with its envelope
    Protobuf,
    /// CBOR
    Cbor,
}

/// A failed conversion.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ConvertCommandError {
    #[error("standard input or output: {0}")]
    Io(#[from] io::Error),
    #[error("the input is larger than {} MiB", INPUT_MAX >> 20)]
    TooLong,
    #[error("the input is not a Kubernetes object: it names no apiVersion and kind")]
    NoObject,
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// Converts standard input to standard output.
///
/// # Errors
/// See [`ConvertCommandError`].
pub(super) fn run(options: ConvertOptions) -> Result<(), ConvertCommandError> {
    let mut input = Vec::new();
    io::stdin().lock().take(INPUT_MAX + 1).read_to_end(&mut input)?;
    if input.len() as u64 > INPUT_MAX {
        return Err(ConvertCommandError::TooLong);
    }
    let to = match options.to {
        TargetEncoding::Json => Format::Json,
        TargetEncoding::Yaml => Format::Yaml,
        TargetEncoding::Protobuf => Format::Protobuf,
        TargetEncoding::Cbor => Format::Cbor,
    };
    let mut out = Vec::with_capacity(input.len());
    let object = convert::read(&input)?;
    if object.gvk.is_none() {
        return Err(ConvertCommandError::NoObject);
    }
    convert::write(&object, to, &mut out)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    Ok(stdout.flush()?)
}
