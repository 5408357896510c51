//! What chat adapters ask of a service, and the data types that tell it.
//!
//! Invariant: each of the six has a data type of its own, and is known by it whatever address stands before
//! the `#`.

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterMethod {
    /// A chat completion: `messages`.
    Chat,
    /// A completion of a text: `prompt`.
    Completion,
    /// Embeddings of texts: `input`.
    Embeddings,
}

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterMode {
    /// Data and config apart: `model`, `stream` and the method's own field are data, the rest is config.
    Standard,
    /// The client's body as it is, but for `model`.
    Direct,
}

/// A request of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdapterCall {
    /// What is asked.
    pub method: AdapterMethod,
    /// How.
    pub mode: AdapterMode,
}

/// Where data types are described.
macro_rules! specs {
    ($fragment:literal) => {
        concat!("https://pkgtool.dev/specs/mlp-data-common.yml#/", $fragment)
    };
}

impl AdapterMethod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Completion, Self::Embeddings];

    /// The field of a body that is the method's own.
    pub fn field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completion => "prompt",
            Self::Embeddings => "input",
        }
    }

    /// What is asked, in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat completions",
            Self::Completion => "completions",
            Self::Embeddings => "embeddings",
        }
    }

    /// Whether an answer may come in pieces.
    pub fn streams(self) -> bool {
        self != Self::Embeddings
    }
}

impl AdapterCall {
    /// The data type that a request of this kind has.
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

    /// What a data type asks for, if it is one of these.
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
