//! `plinth convert`: converts an object between JSON, YAML, protobuf and CBOR.

use std::io::{self, Read};

use clap::{Args, ValueEnum};
use plinth_codec::convert::{self, ConvertError, Format, Object};
use plinth_codec::schema::{self, GVK};

use super::output;

/// Maximum size of the input, in bytes: well over what a server stores.
const INPUT_MAX: u64 = 64 << 20;

/// Options of `plinth convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl get deployment web -o yaml | plinth convert --to json\n  etcdctl get /registry/pods/default/web --print-value-only | plinth convert --to yaml\n  plinth convert --to yaml --validate=warn < old.json\n\nReads one object, or a List of objects, from standard input, in any of the four encodings, and writes it to standard output."
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
    #[error("standard input: {0}")]
    Input(#[source] io::Error),
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("the input is larger than {} MiB", INPUT_MAX >> 20)]
    TooLong,
    #[error("{0} is not a Kubernetes object: it names no apiVersion and kind")]
    NoObject(String),
    #[error("{at}no kind {:?} is registered for version {:?}", gvk.kind.as_str(), gvk.api_version().as_str())]
    UnknownKind { at: String, gvk: GVK },
    #[error("strict decoding error: {0}\nCorrect the object, or give --validate=warn to convert it without what is unknown")]
    Strict(String),
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// Whether a kind that is not built in may be a custom resource. Their groups are domains, and none is a
/// group of Kubernetes.
fn may_be_custom(gvk: &GVK) -> bool {
    gvk.group.contains('.') && !schema::builtin().kinds.keys().any(|known| known.group == gvk.group)
}

/// Refuses kinds that do not exist: the object's own, or those of the items of a List.
fn check_kinds(object: &Object) -> Result<(), ConvertCommandError> {
    let check = |gvk: &Option<GVK>, is_builtin: bool, item: Option<usize>| match gvk {
        None => Err(ConvertCommandError::NoObject(
            item.map_or_else(|| "the input".to_owned(), |index| format!("items[{index}]")),
        )),
        Some(gvk) if is_builtin || may_be_custom(gvk) => Ok(()),
        Some(gvk) => {
            let at = item.map_or_else(String::new, |index| format!("items[{index}]: "));
            Err(ConvertCommandError::UnknownKind { at, gvk: gvk.clone() })
        }
    };
    if object.gvk.as_ref().is_some_and(convert::is_list) {
        let mut items = object.items.iter().enumerate();
        return items.try_for_each(|(index, item)| check(&item.gvk, item.id.is_some(), Some(index)));
    }
    check(&object.gvk, object.id.is_some(), None)
}

/// Converts standard input to standard output.
///
/// # Errors
/// See [`ConvertCommandError`].
pub(super) fn run(options: ConvertOptions) -> Result<(), ConvertCommandError> {
    let mut input = Vec::new();
    io::stdin().lock().take(INPUT_MAX + 1).read_to_end(&mut input).map_err(ConvertCommandError::Input)?;
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
    check_kinds(&object)?;
    match options.validate {
        Validation::Strict if !errors.is_empty() => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(ConvertCommandError::Strict(errors.join(", ")));
        }
        Validation::Warn => {
            errors.iter().for_each(|error| output::error_line(format_args!("Warning: {error}")))
        }
        _ => {}
    }
    convert::write(&object, to, &mut out)?;
    output::write(&out).map_err(ConvertCommandError::Output)
}
