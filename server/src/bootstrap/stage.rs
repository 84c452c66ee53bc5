//! How far the first start of a data directory got, and the marker file that records it.

/// First line of the marker, and its only line in a directory whose first start was complete.
pub(super) const TITLE: &str = "This directory holds the data of a plinth server.\n";

/// What a start may create in a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first start has not finished: missing files are created.
    New,
    /// A backup was restored: certificates and keys are created unless the operator has put some there; the
    /// store must exist.
    Restored,
    /// Certificates and keys for a restored store are being created.
    Keys,
    /// The first start was complete: store, certificates and keys must exist.
    Complete,
}

impl Stage {
    pub(super) const ALL: [Stage; 4] = [Stage::New, Stage::Restored, Stage::Keys, Stage::Complete];

    /// The second line of the marker.
    fn line(self) -> &'static str {
        match self {
            Stage::New => "stage: first start\n",
            Stage::Restored => "stage: restored\n",
            Stage::Keys => "stage: restored, making certificates and keys\n",
            Stage::Complete => "",
        }
    }

    /// The contents of the marker.
    pub(super) fn text(self) -> String {
        format!("{TITLE}{}", self.line())
    }
}
