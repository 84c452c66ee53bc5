//! PriorityLevelConfiguration (`flowcontrol.apiserver.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, By, In, MustBe, Required, Within};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field, IfPresent, NonZero};
use crate::defaults::Literal::Int;
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

fn kind(level: &Part<'_>) {
    match level.text("spec.type") {
        "Exempt" => {
            level.forbid_each(&["spec.limited"], "must be nil if the type is not Limited");
            level.check(&[In("spec.exempt", SHARES)]);
        }
        "Limited" => {
            level.forbid_each(&["spec.exempt"], "must be nil if the type is Limited");
            level.check(&[Required("spec.limited", "must not be empty when type is Limited")]);
            if !level.is_empty("spec.limited") {
                bounds(&level.field("spec.limited"));
            }
        }
        _ => {}
    }
}

const SHARES: &[Check] = &[
    Within("nominalConcurrencyShares", 0, i64::MAX, "must be a non-negative integer"),
    Check::Range("lendablePercent", 0, 100),
];

fn bounds(limited: &Part<'_>) {
    limited.check(SHARES);
    const PERCENT: &str = "if specified, must be a non-negative integer";
    limited.check(&[Within("borrowingLimitPercent", 0, i64::MAX, PERCENT)]);
    let response = limited.field("limitResponse");
    match (response.text("type"), response.get("queuing")) {
        ("Reject", _) => {
            response.forbid_each(&["queuing"], "must be nil if limited.limitResponse.type is not Limited");
        }
        ("Queue", None) => {
            response.required("queuing", "must not be empty if limited.limitResponse.type is Limited");
        }
        ("Queue", Some(queuing)) => queues(&queuing),
        _ => response.one_of("type", &["Queue", "Reject"]),
    }
}

fn queues(queuing: &Part<'_>) {
    const MAX: i64 = 10_000_000;
    const MAX_BITS: u32 = 60;
    let [queues, hand, length] = ["queues", "handSize", "queueLengthLimit"].map(|key| queuing.number(key));
    let refuse = |key: &str, value: i64, why: String| queuing.invalid(key, value, &why);
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
