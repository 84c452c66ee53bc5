//! Conditions of transactions.

use std::cmp::Ordering;

use bytes::Bytes;
use tonic::Status;

use crate::wire::kv::compare::Operand;
use crate::wire::kv::{compare_result, compare_target, Compare, KeyValue};

/// Whether a condition holds for one key; an absent one is zero in every number. An unknown target or result
/// is no condition.
pub(super) fn holds(compare: &Compare, found: Option<&KeyValue>) -> bool {
    let number = |own: fn(&KeyValue) -> i64| found.map_or(0, own);
    let order = match compare.target {
        compare_target::VALUE => match (found, &compare.operand) {
            // An absent key has no value, not an empty one.
            (None, _) => return false,
            (Some(kv), Some(Operand::Value(value))) => kv.value.cmp(value),
            (Some(kv), _) => kv.value.cmp(&Bytes::new()),
        },
        compare_target::VERSION => number(|kv| kv.version).cmp(&match compare.operand {
            Some(Operand::Version(version)) => version,
            _ => 0,
        }),
        compare_target::CREATE => number(|kv| kv.create_revision).cmp(&match compare.operand {
            Some(Operand::CreateRevision(revision)) => revision,
            _ => 0,
        }),
        compare_target::MOD => number(|kv| kv.mod_revision).cmp(&match compare.operand {
            Some(Operand::ModRevision(revision)) => revision,
            _ => 0,
        }),
        compare_target::LEASE => number(|kv| kv.lease).cmp(&match compare.operand {
            Some(Operand::Lease(lease)) => lease,
            _ => 0,
        }),
        _ => Ordering::Equal,
    };
    match compare.result {
        compare_result::EQUAL => order.is_eq(),
        compare_result::NOT_EQUAL => order.is_ne(),
        compare_result::GREATER => order.is_gt(),
        compare_result::LESS => order.is_lt(),
        _ => true,
    }
}

/// Whether a condition holds for every key of a range, of which `visit` shows one after the other. For an
/// empty range it holds as it does for an absent key.
pub(super) fn holds_for_all(
    compare: &Compare,
    mut visit: impl FnMut(&mut dyn FnMut(&KeyValue) -> bool) -> Result<(), Status>,
) -> Result<bool, Status> {
    let (mut any, mut all) = (false, true);
    visit(&mut |kv| {
        any = true;
        all = holds(compare, Some(kv));
        all
    })?;
    Ok(match any {
        true => all,
        false => holds(compare, None),
    })
}
