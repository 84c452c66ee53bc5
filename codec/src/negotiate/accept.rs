//! `Accept` and `Accept-Encoding`: the representation of a response.

use super::{media, Accepted, Encoding, MetaVersion, NotAcceptable, Offer, Shape, Transform};

/// Chooses the representation of a response. `header` is the value of `Accept`; without one, or with an empty
/// one, the response is JSON. Cost: one pass over the header.
///
/// Of the media types that the endpoint can serve, the one with the highest weight wins, then the most
/// specific one, then the first. A watch in YAML is refused even when another media type follows, and so is a
/// list requested as one object: upstream checks these after it has chosen.
pub fn accept(header: Option<&str>, offer: &Offer) -> Result<Accepted, NotAcceptable> {
    let header = match header.map(media::trim) {
        None | Some("") | Some("application/json") | Some("*/*") => return Ok(Accepted::JSON),
        Some(header) => header,
    };
    let accepted = best(header, offer).ok_or_else(|| refusal(header, offer))?;
    match (offer.shape, accepted.transform, accepted.encoding) {
        (Shape::Watch, _, Encoding::Yaml) => Err(NotAcceptable::WatchMediaType),
        (Shape::List, Transform::PartialObjectMetadata(_), _) => Err(NotAcceptable::ListAsObject),
        (Shape::Object | Shape::Watch, Transform::PartialObjectMetadataList(_), _) => {
            Err(NotAcceptable::ObjectAsList)
        }
        _ => Ok(accepted),
    }
}

/// Chooses the representation of an error: the accepted encoding, and indented JSON where no media type
/// without a transformation is accepted. Never fails.
pub fn accept_for_error(header: Option<&str>) -> Accepted {
    accept(header, &Offer::builtin(Shape::Plain)).unwrap_or(Accepted { pretty: true, ..Accepted::JSON })
}

/// Whether JSON is to be indented: by the query parameter `pretty`; without it, when the media type had
/// `pretty=1` or the User-Agent is interactive (curl, Wget, browsers).
pub fn wants_pretty(accepted: &Accepted, parameter: Option<&str>, user_agent: Option<&str>) -> bool {
    const PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
    if accepted.encoding != Encoding::Json {
        return false;
    }
    // The media type and the query are alternatives, so `pretty=false` does not undo `pretty=1`.
    accepted.pretty
        || match parameter.filter(|value| !value.is_empty()) {
            Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => user_agent.is_some_and(|agent| PEOPLE.iter().any(|p| agent.starts_with(p))),
        }
}

/// Whether the client takes gzip: `Accept-Encoding` names it with a weight above 0 that is not below the one
/// of `identity`. A bare `*` does not request compression, as upstream.
pub fn gzip(header: Option<&str>) -> bool {
    let (mut gzip, mut identity) = (0, 0);
    for item in header.into_iter().flat_map(media::list) {
        let (coding, parameters) = media::with_parameters(item);
        let weight = weight_of(parameters);
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            gzip = weight;
        } else if coding.eq_ignore_ascii_case("identity") {
            identity = weight;
        }
    }
    gzip > 0 && gzip >= identity
}

/// Plain HTTP negotiation among media types for endpoints that serve no objects (OpenAPI documents,
/// metrics): the index of the one to serve. Parameters other than the weight are ignored.
pub fn choose(header: Option<&str>, offered: &[&str]) -> Option<usize> {
    let Some(header) = header.map(media::trim).filter(|h| !h.is_empty()) else {
        return (!offered.is_empty()).then_some(0);
    };
    let mut best: Option<(Rank, usize)> = None;
    for item in media::list(header) {
        let (name, parameters) = media::with_parameters(item);
        let Some(range) = media::range(name) else { continue };
        let rank = Rank { weight: weight_of(parameters), specificity: specificity(range) };
        if rank.weight == 0 || best.is_some_and(|(b, _)| rank <= b) {
            continue;
        }
        let found = offered.iter().position(|o| media::range(o).is_some_and(|o| covers(range, o)));
        best = found.map(|i| (rank, i)).or(best);
    }
    best.map(|(_, i)| i)
}

/// The representation of a page as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageObject {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// Place of its version.
    pub version: usize,
    /// Whether the media type asks for indented JSON.
    pub pretty: bool,
}

/// The representation of a page that is text, or an object of one kind in a few versions (`/statusz`,
/// `/flagz`): `None` within is the text. Without a header it is the text; an object is served only where its
/// version is asked for.
///
/// # Errors
/// [`NotAcceptable::Page`].
pub fn choose_page(
    header: Option<&str>,
    (group, kind): (&str, &str),
    versions: &[&str],
) -> Result<Option<PageObject>, NotAcceptable> {
    let Some(header) = header.map(media::trim).filter(|header| !header.is_empty()) else { return Ok(None) };
    let mut best: Option<(Rank, Option<PageObject>)> = None;
    for clause in media::list(header).filter_map(Clause::parse) {
        if clause.rank.weight == 0 || best.is_some_and(|(rank, _)| clause.rank <= rank) {
            continue;
        }
        let is_plain = clause.kind.is_none() && clause.group.is_none() && clause.version.is_none();
        let found = match is_plain {
            true => covers(clause.range, ("text", "plain")).then_some(None),
            false if clause.kind == Some(kind) && clause.group == Some(group) => {
                let version = versions.iter().position(|version| clause.version == Some(version));
                let encoding = [Encoding::Json, Encoding::Yaml]
                    .into_iter()
                    .find(|encoding| clause.covers(*encoding, Shape::Plain));
                encoding
                    .zip(version)
                    .map(|(encoding, version)| Some(PageObject { encoding, version, pretty: clause.pretty }))
            }
            false => None,
        };
        best = found.map(|page| (clause.rank, page)).or(best);
    }
    best.map(|(_, page)| page).ok_or(NotAcceptable::Page)
}

/// The preference of a media range; greater is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    weight: u16,
    specificity: u8,
}

fn specificity((kind, subtype): (&str, &str)) -> u8 {
    u8::from(kind != "*") + u8::from(subtype != "*")
}

fn covers(range: (&str, &str), offered: (&str, &str)) -> bool {
    (range.0 == "*" && range.1 == "*")
        || (range.0.eq_ignore_ascii_case(offered.0)
            && (range.1 == "*" || range.1.eq_ignore_ascii_case(offered.1)))
}

fn weight_of<'a>(parameters: impl Iterator<Item = &'a str>) -> u16 {
    parameters
        .filter_map(media::parameter)
        .filter(|(name, _)| name.eq_ignore_ascii_case("q"))
        .last()
        .map_or(1000, |(_, value)| media::weight(value))
}

/// The parameters of a media range that are used by the API.
struct Clause<'a> {
    rank: Rank,
    range: (&'a str, &'a str),
    kind: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    stream: Option<&'a str>,
    server_version: Option<&'a str>,
    pretty: bool,
}

impl<'a> Clause<'a> {
    fn parse(item: &'a str) -> Option<Clause<'a>> {
        let (name, parameters) = media::with_parameters(item);
        let range = media::range(name)?;
        let mut clause = Clause {
            rank: Rank { weight: 1000, specificity: specificity(range) },
            range,
            kind: None,
            group: None,
            version: None,
            stream: None,
            server_version: None,
            pretty: false,
        };
        for (name, value) in parameters.filter_map(media::parameter) {
            match name {
                "as" => clause.kind = Some(value),
                "g" => clause.group = Some(value),
                "v" => clause.version = Some(value),
                "stream" => clause.stream = Some(value),
                "sv" => clause.server_version = Some(value),
                "pretty" => clause.pretty = value == "1",
                "q" | "Q" => clause.rank.weight = media::weight(value),
                _ => {}
            }
        }
        Some(clause)
    }

    /// The requested transformation; `Err` when it is unknown.
    fn transform(&self) -> Result<Transform, ()> {
        if self.kind.is_none() && self.group.is_none() && self.version.is_none() {
            return Ok(Transform::None);
        }
        let version = match (self.group, self.version) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            (Some("apidiscovery.k8s.io"), Some("v2")) if self.kind == Some("APIGroupDiscoveryList") => {
                return Ok(Transform::AggregatedDiscovery)
            }
            _ => return Err(()),
        };
        match self.kind {
            Some("Table") => Ok(Transform::Table(version)),
            Some("PartialObjectMetadata") => Ok(Transform::PartialObjectMetadata(version)),
            Some("PartialObjectMetadataList") => Ok(Transform::PartialObjectMetadataList(version)),
            _ => Err(()),
        }
    }

    /// Whether this range covers the encoding. A watch may also be requested by the media type of CBOR watch
    /// responses.
    fn covers(&self, encoding: Encoding, shape: Shape) -> bool {
        media::range(encoding.media_type()).is_some_and(|m| covers(self.range, m))
            || (encoding == Encoding::Cbor
                && shape == Shape::Watch
                && covers(self.range, ("application", "cbor-seq")))
    }
}

/// Whether the endpoint serves this transformation in this encoding.
fn serves(offer: &Offer, transform: Transform, encoding: Encoding) -> bool {
    let objects = matches!(offer.shape, Shape::Object | Shape::List | Shape::Watch);
    match transform {
        Transform::None => offer.protobuf || encoding != Encoding::Protobuf,
        Transform::Table(_) => objects && offer.tables && matches!(encoding, Encoding::Json | Encoding::Yaml),
        Transform::PartialObjectMetadata(_) | Transform::PartialObjectMetadataList(_) => objects,
        Transform::AggregatedDiscovery => offer.shape == Shape::Discovery,
    }
}

/// The best of the media types that the endpoint can serve.
fn best(header: &str, offer: &Offer) -> Option<Accepted> {
    let refused = refused_encodings(header);
    let mut best: Option<((bool, Rank), Accepted)> = None;
    for clause in media::list(header).filter_map(Clause::parse) {
        let Ok(transform) = clause.transform() else { continue };
        // Discovery prefers a media type that requests the aggregated document.
        let rank = (transform == Transform::AggregatedDiscovery, clause.rank);
        if clause.rank.weight == 0 || best.is_some_and(|(b, _)| rank <= b) {
            continue;
        }
        if clause.stream.is_some_and(|s| s != "watch") || !serves_version(offer, clause.server_version) {
            continue;
        }
        let encoding = Encoding::ALL.into_iter().find(|&encoding| {
            clause.covers(encoding, offer.shape)
                && !refused[encoding as usize]
                && (clause.stream.is_none() || encoding.watch_media_type().is_some())
                && serves(offer, transform, encoding)
        });
        if let Some(encoding) = encoding {
            best = Some((rank, Accepted { encoding, transform, pretty: clause.pretty }));
        }
    }
    best.map(|(_, accepted)| accepted)
}

/// The error when nothing can be served. Upstream's router checks the bare media types before the handlers
/// check the parameters; custom resources do not pass through the router.
fn refusal(header: &str, offer: &Offer) -> NotAcceptable {
    let known = |clause: Clause<'_>| Encoding::ALL.iter().any(|&e| clause.covers(e, offer.shape));
    if !offer.protobuf || media::list(header).filter_map(Clause::parse).any(known) {
        NotAcceptable::MediaType
    } else {
        NotAcceptable::Unknown { watchable: matches!(offer.shape, Shape::List | Shape::Watch) }
    }
}

/// `sv` names the version of the server's own types, of which there is one; endpoints without
/// transformations have none.
fn serves_version(offer: &Offer, version: Option<&str>) -> bool {
    match offer.shape {
        Shape::Object | Shape::List | Shape::Watch => version.is_none_or(|v| v == "v1"),
        Shape::Discovery | Shape::Plain => version.is_none(),
    }
}

/// The encodings that the client names with `q=0` and without a transformation: a wildcard does not include
/// them. Indexed by [`Encoding`].
fn refused_encodings(header: &str) -> [bool; 4] {
    let mut refused = [false; 4];
    // Hardly any client sends a weight of zero; for the others the header is not read twice.
    if !header.contains("=0") {
        return refused;
    }
    for clause in media::list(header).filter_map(Clause::parse) {
        let exact = clause.rank.weight == 0 && clause.rank.specificity == 2;
        if exact && clause.transform() == Ok(Transform::None) {
            for encoding in Encoding::ALL {
                refused[encoding as usize] |= clause.covers(encoding, Shape::Plain);
            }
        }
    }
    refused
}
