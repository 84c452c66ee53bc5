//! ServiceCIDR (`networking.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, By, Each, Is};
use crate::checks::{address, Part};
use crate::path::texts;
use crate::strategy::{
    Conversion, Deprecation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA,
};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_checks: CREATE_CHECKS,
    validate_update,
    status_keeps: STATUS_KEEPS_METADATA,
    columns: &[Column::NAME, Column::list("CIDRs", "spec.cidrs", ""), Column::AGE],
    reset_fields: STATUS_OWNS_NO_METADATA,
    deprecations: &[Deprecation::new(
        "v1beta1",
        "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+",
        "1.37",
    )],
    conversions: &[Conversion::same("v1beta1", ("networking.k8s.io", "v1"))],
    ..BASE
};

const CREATE_CHECKS: &[Check] = &[By(|object| {
    let networks = object.texts(PATH);
    let family = |network: &str| network.contains(':');
    match networks.as_slice() {
        [] => object.required(PATH, "at least one CIDR required"),
        [_] => {}
        [first, second] if family(first) != family(second) => {}
        _ => {
            let why =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            object.invalid(PATH, object.list(PATH).to_vec(), why);
        }
    }
    object.check(&[Each(PATH, &[Is("", address::canonical_network)])]);
})];

const PATH: &str = "spec.cidrs";

/// The CIDRs are immutable, except that a single-stack ServiceCIDR can become dual-stack.
fn validate_update(new: &Part<'_>, old: &Value) {
    let (now, before) = (new.texts(PATH), texts(old, PATH));
    if before.len() != now.len() && (before.len() != 1 || now.len() < before.len()) {
        new.invalid(PATH, new.list(PATH).to_vec(), IMMUTABLE);
        return;
    }
    for (now, _) in new.each(PATH).zip(&before).filter(|(now, before)| now.text("") != **before) {
        now.invalid("", now.text(""), IMMUTABLE);
    }
}
