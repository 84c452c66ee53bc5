//! Values of the types that the libraries add.

use std::net::IpAddr;
use std::sync::Arc;

use plinth_codec::quantity::Quantity;
use smol_str::SmolStr;

use super::authz::{Answer, Principal, ResourceQuestion};
use super::format::NamedFormat;
use super::net::Network;
use super::semver::Version;
use super::url::Url;
use crate::types::Opaque;

/// A value of a library's own type.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    Quantity(Quantity),
    Url(Url),
    Ip(IpAddr),
    Network(Network),
    Format(&'static NamedFormat),
    Version(Version),
    Authorizer(Principal),
    PathCheck(Principal, SmolStr),
    GroupCheck(Principal, SmolStr),
    ResourceCheck(Principal, ResourceQuestion),
    Decision(Arc<Answer>),
}

impl Thing {
    pub(crate) fn kind(&self) -> Opaque {
        match self {
            Thing::Quantity(_) => Opaque::Quantity,
            Thing::Url(_) => Opaque::Url,
            Thing::Ip(_) => Opaque::Ip,
            Thing::Network(_) => Opaque::Cidr,
            Thing::Format(_) => Opaque::Format,
            Thing::Version(_) => Opaque::Semver,
            Thing::Authorizer(_) => Opaque::Authorizer,
            Thing::PathCheck(..) => Opaque::PathCheck,
            Thing::GroupCheck(..) => Opaque::GroupCheck,
            Thing::ResourceCheck(..) => Opaque::ResourceCheck,
            Thing::Decision(_) => Opaque::Decision,
        }
    }

    /// The size that costs are computed of: bytes of an address, 1 for all else.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Thing::Ip(IpAddr::V4(_)) | Thing::Network(Network { address: IpAddr::V4(_), .. }) => 4,
            Thing::Ip(_) | Thing::Network(_) => 16,
            _ => 1,
        }
    }
}

impl PartialEq for Thing {
    fn eq(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Quantity(a), Thing::Quantity(b)) => a == b,
            (Thing::Url(a), Thing::Url(b)) => a == b,
            (Thing::Ip(a), Thing::Ip(b)) => a == b,
            (Thing::Network(a), Thing::Network(b)) => a == b,
            (Thing::Format(a), Thing::Format(b)) => a.name == b.name,
            (Thing::Version(a), Thing::Version(b)) => a.compare(b).is_eq(),
            (Thing::Authorizer(a), Thing::Authorizer(b)) => a == b,
            (Thing::PathCheck(a, x), Thing::PathCheck(b, y)) => a == b && x == y,
            (Thing::GroupCheck(a, x), Thing::GroupCheck(b, y)) => a == b && x == y,
            (Thing::ResourceCheck(a, x), Thing::ResourceCheck(b, y)) => a == b && x == y,
            (Thing::Decision(a), Thing::Decision(b)) => a == b,
            _ => false,
        }
    }
}
