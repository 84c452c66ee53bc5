//! Values of the opaque types that the libraries add.

mod authorization;
mod format;
mod network;
mod url;
mod version;

use std::net::IpAddr;
use std::sync::Arc;

use plinth_codec::quantity::Quantity;
use smol_str::SmolStr;

use crate::types::{OpaqueType, Type};

pub use self::authorization::{
    AuthorizationDecision, AuthorizationRequest, AuthorizationTarget, Principal, ResourceAttributes,
};
pub(crate) use self::format::NamedFormat;
pub(crate) use self::network::Network;
pub(crate) use self::url::{unescape, Url};
pub(crate) use self::version::Version;

/// A value of an opaque type.
#[derive(Clone, Debug)]
pub(crate) enum OpaqueValue {
    Quantity(Quantity),
    Url(Url),
    Ip(IpAddr),
    Network(Network),
    Format(&'static NamedFormat),
    Version(Version),
    Authorizer(Principal),
    PathCheck(Principal, SmolStr),
    GroupCheck(Principal, SmolStr),
    ResourceCheck(Principal, ResourceAttributes),
    Decision(Arc<AuthorizationDecision>),
}

impl OpaqueValue {
    pub(crate) fn kind(&self) -> OpaqueType {
        match self {
            OpaqueValue::Quantity(_) => OpaqueType::Quantity,
            OpaqueValue::Url(_) => OpaqueType::Url,
            OpaqueValue::Ip(_) => OpaqueType::Ip,
            OpaqueValue::Network(_) => OpaqueType::Cidr,
            OpaqueValue::Format(_) => OpaqueType::Format,
            OpaqueValue::Version(_) => OpaqueType::Semver,
            OpaqueValue::Authorizer(_) => OpaqueType::Authorizer,
            OpaqueValue::PathCheck(..) => OpaqueType::PathCheck,
            OpaqueValue::GroupCheck(..) => OpaqueType::GroupCheck,
            OpaqueValue::ResourceCheck(..) => OpaqueType::ResourceCheck,
            OpaqueValue::Decision(_) => OpaqueType::Decision,
        }
    }

    pub(crate) fn to_type(&self) -> Type {
        Type::Opaque(self.kind())
    }

    /// The size from which costs are computed: bytes of an address, 1 for all else.
    pub(crate) fn size(&self) -> u64 {
        match self {
            OpaqueValue::Ip(IpAddr::V4(_)) | OpaqueValue::Network(Network { address: IpAddr::V4(_), .. }) => {
                4
            }
            OpaqueValue::Ip(_) | OpaqueValue::Network(_) => 16,
            _ => 1,
        }
    }
}

impl PartialEq for OpaqueValue {
    fn eq(&self, other: &OpaqueValue) -> bool {
        match (self, other) {
            (OpaqueValue::Quantity(a), OpaqueValue::Quantity(b)) => a == b,
            (OpaqueValue::Url(a), OpaqueValue::Url(b)) => a == b,
            (OpaqueValue::Ip(a), OpaqueValue::Ip(b)) => a == b,
            (OpaqueValue::Network(a), OpaqueValue::Network(b)) => a == b,
            (OpaqueValue::Format(a), OpaqueValue::Format(b)) => a.name == b.name,
            (OpaqueValue::Version(a), OpaqueValue::Version(b)) => a.compare(b).is_eq(),
            (OpaqueValue::Authorizer(a), OpaqueValue::Authorizer(b)) => a == b,
            (OpaqueValue::PathCheck(a, x), OpaqueValue::PathCheck(b, y)) => a == b && x == y,
            (OpaqueValue::GroupCheck(a, x), OpaqueValue::GroupCheck(b, y)) => a == b && x == y,
            (OpaqueValue::ResourceCheck(a, x), OpaqueValue::ResourceCheck(b, y)) => a == b && x == y,
            (OpaqueValue::Decision(a), OpaqueValue::Decision(b)) => a == b,
            _ => false,
        }
    }
}
