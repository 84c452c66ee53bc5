//! Content negotiation: the representation of responses and of request bodies.
//!
//! Rules of RFC 9110 (section 12) and of upstream's `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`. A
//! media type of `Accept` may request a transformation (`as=Table;g=meta.k8s.io;v=v1`) besides the encoding;
//! a media type that the endpoint cannot serve is skipped, and only when none is left the response is 406. So
//! `application/vnd.kubernetes.protobuf, application/json` on a custom resource, which has no protobuf, gets
//! JSON.
//!
//! Where this differs from upstream, on purpose: `q=0` refuses a media type (upstream serves it last), type
//! names compare without regard to case, and a higher `q` always comes before a more specific range. These
//! follow RFC 9110.
//!
//! Nothing here allocates, except when an error is formatted.
//!
//! ```
//! use plinth_codec::negotiate::{accept, Encoding, MetaVersion, Offer, Shape, Transform};
//!
//! // What kubectl sends for `kubectl get pods`.
//! let header = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
//! let accepted = accept(Some(header), &Offer::builtin(Shape::List)).unwrap();
//! assert_eq!(accepted.encoding, Encoding::Json);
//! assert_eq!(accepted.transform, Transform::Table(MetaVersion::V1));
//!
//! let refused = accept(Some("text/html"), &Offer::builtin(Shape::Object)).unwrap_err();
//! assert!(refused.to_string().ends_with("Available representations: application/json, application/yaml, \
//!     application/vnd.kubernetes.protobuf, application/cbor"));
//! ```

mod accept;
mod content_type;
mod encoding;
mod media;

pub use accept::{accept, accept_for_error, choose, choose_page, gzip, wants_pretty, PageObject};
pub use content_type::{content_type, Accepts, ContentType, UnsupportedMediaType};
pub use encoding::Encoding;

use encoding::CommaSeparated;

/// The kind of response of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object: get, create, update, patch, delete.
    Object,
    /// A list of objects.
    List,
    /// A stream of watch events.
    Watch,
    /// `/api` and `/apis`: a group list, or the aggregated document on request.
    Discovery,
    /// Objects without transformations: Status, resource lists of a version.
    Plain,
}

/// The representations that an endpoint offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The kind of response of an endpoint.
    pub shape: Shape,
    /// Whether the objects themselves exist in protobuf. Custom resources do not; their
    /// PartialObjectMetadata and errors do.
    pub protobuf: bool,
    /// Whether the resource has a Table form. Reviews (`tokenreviews` and the like) do not.
    pub tables: bool,
}

impl Offer {
    /// The offer of a built-in resource.
    pub const fn builtin(shape: Shape) -> Offer {
        Offer { shape, protobuf: true, tables: true }
    }

    /// The offer of a custom resource.
    pub const fn custom(shape: Shape) -> Offer {
        Offer { shape, protobuf: false, tables: true }
    }
}

/// The version of `meta.k8s.io` of a transformed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// The apiVersion of the response.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The transformation of objects before they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Nothing: the objects as they are.
    None,
    /// A Table; in a watch each event carries a Table of one row.
    Table(MetaVersion),
    /// The metadata alone; in a watch that of each event's object.
    PartialObjectMetadata(MetaVersion),
    /// A list of the metadata alone.
    PartialObjectMetadataList(MetaVersion),
    /// The document `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`.
    AggregatedDiscovery,
}

/// The outcome of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The encoding of the response; in a watch never YAML.
    pub encoding: Encoding,
    /// The transformation of the objects.
    pub transform: Transform,
    /// Whether the media type had `pretty=1`. The query and the User-Agent are considered, too: see
    /// [`wants_pretty`]. Only JSON has an indented form.
    pub pretty: bool,
}

impl Accepted {
    /// JSON, untransformed: the response to a request without `Accept`.
    pub const JSON: Accepted =
        Accepted { encoding: Encoding::Json, transform: Transform::None, pretty: false };

    /// The Content-Type of the response of an endpoint of this shape.
    pub fn content_type(&self, shape: Shape) -> &'static str {
        match (self.transform, shape) {
            (Transform::AggregatedDiscovery, _) => match self.encoding {
                Encoding::Json => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Encoding::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Encoding::Protobuf => {
                    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                }
                Encoding::Cbor => "application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            },
            (_, Shape::Watch) => self.encoding.watch_media_type().unwrap_or(self.encoding.media_type()),
            _ => self.encoding.media_type(),
        }
    }
}

/// No media type of `Accept` can be served: 406, reason `NotAcceptable`. The text is the message of the
/// Status, which is written in plain JSON. Upstream refuses in two places, its router and its handlers, each
/// with its own message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAcceptable {
    /// None of the media types exists for this endpoint.
    #[error("406: Not Acceptable\n\nAvailable representations: {}", CommaSeparated(self.supported()))]
    Unknown {
        /// Whether the endpoint supports watch, so that the message lists the media types of watches.
        watchable: bool,
    },
    /// A media type exists, but not with these parameters; or not for custom resources.
    #[error("only the following media types are accepted: {}", CommaSeparated(self.supported()))]
    MediaType,
    /// A media type exists, but not for watches.
    #[error("only the following media types are accepted: {}", CommaSeparated(self.supported()))]
    WatchMediaType,
    /// A list was requested as one object.
    #[error("you requested PartialObjectMetadata, but the requested object is a list")]
    ListAsObject,
    /// One object, or a watch, was requested as a list.
    #[error("you requested PartialObjectMetadataList, but the requested object is not a list")]
    ObjectAsList,
    /// A page was requested as something else.
    #[error("only the following media types are accepted: {}", CommaSeparated(self.supported()))]
    Page,
}

/// All media types, in upstream's order: objects first, then watches.
pub(crate) const MEDIA_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/cbor-seq",
];
/// Number of media types of objects.
pub(crate) const OBJECT_MEDIA_TYPES: usize = 4;

impl NotAcceptable {
    /// The media types that would have been accepted, in upstream's order; empty where the transformation was
    /// wrong. Custom resources list protobuf, too, because their metadata and errors have that form.
    pub fn supported(&self) -> &'static [&'static str] {
        let (objects, watches) = MEDIA_TYPES.split_at(OBJECT_MEDIA_TYPES);
        match self {
            NotAcceptable::Unknown { watchable: true } => MEDIA_TYPES,
            NotAcceptable::Unknown { watchable: false } | NotAcceptable::MediaType => objects,
            NotAcceptable::WatchMediaType => watches,
            NotAcceptable::Page => &["application/json", "application/yaml", "text/plain"],
            NotAcceptable::ListAsObject | NotAcceptable::ObjectAsList => &[],
        }
    }
}

#[cfg(test)]
mod tests;
