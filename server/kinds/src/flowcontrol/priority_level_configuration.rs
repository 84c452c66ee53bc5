//! PriorityLevelConfiguration (`flowcontrol.apiserver.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::validate;
use crate::checks::Check::{self, By, MustBe};
use crate::defaults::DefaultRule::{self, Field, IfPresent, NonZero};
use crate::defaults::Literal::Int;
use crate::path::{at, int, is_empty, text};
use crate::strategy::{Generation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    status_keeps: STATUS_KEEPS_METADATA,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    IfPresent(
        "spec.limited",
        &[
            Field("nominalConcurrencyShares", Int(30)),
            Field("lendablePercent", Int(0)),
            IfPresent(
                "limitResponse.queuing",
                &[NonZero("handSize", 8), NonZero("queues", 64), NonZero("queueLengthLimit", 50)],
            ),
        ],
    ),
    IfPresent("spec.exempt", &[Field("nominalConcurrencyShares", Int(0)), Field("lendablePercent", Int(0))]),
];

const CHECKS: &[Check] = &[MustBe("spec.type", &["Exempt", "Limited"]), By(kind)];

fn kind(level: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (limited, exempt) = (at(level, "spec.limited"), at(level, "spec.exempt"));
    match text(level, "spec.type") {
        "Exempt" => {
            if limited.is_some() {
                errors.push(field::forbidden("spec.limited", "must be nil if the type is not Limited"));
            }
            if let Some(exempt) = exempt {
                shares(exempt, format_args!("spec.exempt."), errors);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                errors.push(field::forbidden("spec.exempt", "must be nil if the type is Limited"));
            }
            match limited.filter(|limited| !is_empty(Some(limited))) {
                None => {
                    errors.push(field::required("spec.limited", "must not be empty when type is Limited"));
                }
                Some(limited) => bounds(limited, errors),
            }
        }
        _ => {}
    }
}

fn shares(holder: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if let Some(shares) = int(holder, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        let why = "must be a non-negative integer";
        errors.push(field::invalid(format_args!("{path}nominalConcurrencyShares"), shares, why));
    }
    validate(&[Check::Range("lendablePercent", 0, 100)], holder, path, errors);
}

fn bounds(limited: &Value, errors: &mut Vec<Cause>) {
    shares(limited, format_args!("spec.limited."), errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let why = "if specified, must be a non-negative integer";
        errors.push(field::invalid("spec.limited.borrowingLimitPercent", percent, why));
    }
    const PATH: &str = "spec.limited.limitResponse";
    let queuing = at(limited, "limitResponse.queuing");
    match text(limited, "limitResponse.type") {
        "Reject" => {
            if queuing.is_some() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(field::forbidden(format_args!("{PATH}.queuing"), why));
            }
        }
        "Queue" => match queuing {
            None => {
                let why = "must not be empty if limited.limitResponse.type is Limited";
                errors.push(field::required(format_args!("{PATH}.queuing"), why));
            }
            Some(queuing) => queues(queuing, errors),
        },
        other => {
            errors.push(field::not_supported(format_args!("{PATH}.type"), other, &["Queue", "Reject"]));
        }
    }
}

fn queues(queuing: &Value, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.limited.limitResponse.queuing";
    const MAX: i64 = 10_000_000;
    const MAX_BITS: u32 = 60;
    let number = |key: &str| int(queuing, key).unwrap_or(0);
    let (queues, hand, length) = (number("queues"), number("handSize"), number("queueLengthLimit"));
    let mut refuse = |key: &str, value: i64, why: String| {
        errors.push(field::invalid(format_args!("{PATH}.{key}"), value, &why));
    };
    if length <= 0 {
        refuse("queueLengthLimit", length, "must be positive".into());
    }
    if queues <= 0 {
        refuse("queues", queues, "must be positive".into());
    } else if queues > MAX {
        refuse("queues", queues, format!("must not be greater than {MAX}"));
    }
    if hand <= 0 {
        refuse("handSize", hand, "must be positive".into());
    } else if hand > queues {
        refuse("handSize", hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MAX_BITS {
        let why = format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_BITS}");
        refuse("handSize", hand, why);
    }
}

/// Bits of entropy that shuffle sharding needs to deal a hand (k8s.io/apiserver `pkg/util/shufflesharding`).
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type", "spec.type", ""),
    Column::int_or("NominalConcurrencyShares", "spec.limited.nominalConcurrencyShares", "<none>"),
    Column::int_or("Queues", "spec.limited.limitResponse.queuing.queues", "<none>"),
    Column::int_or("HandSize", "spec.limited.limitResponse.queuing.handSize", "<none>"),
    Column::int_or("QueueLengthLimit", "spec.limited.limitResponse.queuing.queueLengthLimit", "<none>"),
    Column::AGE,
];
