//! ComponentStatus (`core`).

use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { deprecation_warning: Some("v1 ComponentStatus is deprecated in v1.19+"), ..BASE };
