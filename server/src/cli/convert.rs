//! `plinth convert`: converts an object between JSON, YAML, protobuf and CBOR.

use std::io::{self, Read, Write};

use clap::{Args, ValueEnum};
use plinth_codec::convert::{self, ConvertError, Format};
use plinth_codec::schema::{self, GVK};

/// Maximum size of the input, in bytes: well over what a server stores.
const INPUT_MAX: u64 = 64 << 20;

/// Options of `plinth convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl get deployment web -o yaml | plinth convert --to json\n  etcdctl get /registry/pods/default/web --print-value-only | plinth convert --to yaml\n  plinth convert --to yaml --validate=warn < old.json\n\nReads one object from standard input, in any of the four encodings, and writes it to standard output."
)]
pub struct ConvertOptions {
    /// Encoding to write
    #[arg(long, value_name = "FORMAT")]
    pub to: TargetEncoding,
    /// What unknown and duplicate fields do: fail, print a warning to standard error, or nothing. Unknown
    /// fields of a built-in kind are left out of the output
    #[arg(
        long,
        value_enum,
        default_value_t = Validation::Strict,
        num_args = 0..=1,
        default_missing_value = "strict",
        require_equals = true,
        value_name = "LEVEL"
    )]
    pub validate: Validation,
}

/// Levels of validation, with the names of kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Validation {
    /// Fail with a list of them
    #[value(alias = "true")]
    Strict,
    /// Print a warning for each
    Warn,
    /// Leave them out silently
    #[value(alias = "false")]
    Ignore,
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
    #[error("no kind {:?} is registered for version {:?}", .0.kind.as_str(), .0.api_version().as_str())]
    UnknownKind(GVK),
    #[error("strict decoding error: {0}\nCorrect the object, or give --validate=warn to convert it without what is unknown")]
    Strict(String),
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// Whether a kind that is not built in may be a custom resource. Their groups are domains, and none is a
/// group of Kubernetes. A List, which kubectl prints, is of no group's kinds.
fn may_be_custom(gvk: &GVK) -> bool {
    let is_builtin_group = || schema::builtin().kinds.keys().any(|known| known.group == gvk.group);
    (gvk.group.contains('.') && !is_builtin_group()) || (gvk.group.is_empty() && gvk.kind == "List")
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
    let (object, errors) = convert::read_reporting(&input)?;
    match &object.gvk {
        None => return Err(ConvertCommandError::NoObject),
        Some(gvk) if object.id.is_none() && !may_be_custom(gvk) => {
            return Err(ConvertCommandError::UnknownKind(gvk.clone()));
        }
        Some(_) => {}
    }
    match options.validate {
        Validation::Strict if !errors.is_empty() => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(ConvertCommandError::Strict(errors.join(", ")));
        }
        Validation::Warn => errors.iter().for_each(|error| eprintln!("Warning: {error}")),
        _ => {}
    }
    convert::write(&object, to, &mut out)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    Ok(stdout.flush()?)
}
