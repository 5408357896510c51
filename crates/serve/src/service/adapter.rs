//! Requests of chat adapters (OpenAI-compatible clients) to a service, and the data types that
//! identify them.
//!
//! Invariant: each of the six kinds of request has its own data type. Only the fragment after `#`
//! identifies it, not the address before it.

/// The requested method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterMethod {
    /// A chat completion: `messages`.
    Chat,
    /// A completion of a text: `prompt`.
    Completion,
    /// Embeddings of texts: `input`.
    Embeddings,
}

/// Layout of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterMode {
    /// Separate data and config: data contains `model`, `stream` and the method's own field, config
    /// the rest.
    Standard,
    /// The client's unchanged body, except for `model`.
    Direct,
}

/// Method and layout of an adapter's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdapterCall {
    /// The requested method.
    pub method: AdapterMethod,
    /// The layout.
    pub mode: AdapterMode,
}

/// Builds the address of a data type's description.
macro_rules! specs {
    ($fragment:literal) => {
        concat!("https://pkgtool.dev/specs/mlp-data-common.yml#/", $fragment)
    };
}

impl AdapterMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Completion, Self::Embeddings];

    /// Returns the body field that is specific to the method.
    pub fn field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completion => "prompt",
            Self::Embeddings => "input",
        }
    }

    /// Returns the method's name for messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat completions",
            Self::Completion => "completions",
            Self::Embeddings => "embeddings",
        }
    }

    /// Returns whether the answer may be streamed.
    pub fn streams(self) -> bool {
        self != Self::Embeddings
    }
}

impl AdapterCall {
    /// Returns the data type of such a request.
    pub fn data_type(self) -> &'static str {
        match (self.mode, self.method) {
            (AdapterMode::Standard, AdapterMethod::Chat) => specs!("ChatCompletion"),
            (AdapterMode::Standard, AdapterMethod::Completion) => specs!("Completion"),
            (AdapterMode::Standard, AdapterMethod::Embeddings) => specs!("Embeddings"),
            (AdapterMode::Direct, AdapterMethod::Chat) => specs!("DirectChatCompletion"),
            (AdapterMode::Direct, AdapterMethod::Completion) => specs!("DirectCompletion"),
            (AdapterMode::Direct, AdapterMethod::Embeddings) => specs!("DirectEmbeddings"),
        }
    }

    /// Parses a data type, if it is one of an adapter.
    pub fn of(data_type: &str) -> Option<Self> {
        let (_, fragment) = data_type.rsplit_once('#')?;
        let modes = [AdapterMode::Standard, AdapterMode::Direct];
        let all = modes
            .into_iter()
            .flat_map(|mode| AdapterMethod::ALL.map(|method| Self { method, mode }));
        all.into_iter().find(|call| {
            let known = call.data_type().rsplit_once('#');
            known.is_some_and(|(_, known)| known == fragment)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_type_is_known_by_its_fragment() {
        for mode in [AdapterMode::Standard, AdapterMode::Direct] {
            for method in AdapterMethod::ALL {
                let call = AdapterCall { method, mode };
                assert_eq!(AdapterCall::of(call.data_type()), Some(call));
            }
        }
        let elsewhere = AdapterCall::of("https://other/x.yml#/ChatCompletion");
        assert_eq!(elsewhere.map(|call| call.method), Some(AdapterMethod::Chat));
        for other in [
            "",
            "#",
            "ChatCompletion",
            "image/png",
            "https://specs/mlp-data-common.yml#/JsonObject",
        ] {
            assert_eq!(AdapterCall::of(other), None, "{other}");
        }
    }
}
