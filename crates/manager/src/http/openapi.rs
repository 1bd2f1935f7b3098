//! The table of routes as documents: docs/openapi.json, which the manager serves too, and the list in docs/api.md.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};
use trust::Action;

use super::Shared;
use super::budgets::Payer;
use super::route::{Call, Media, Needs, Reply, Route};
use super::table;
use super::who::Problem;

/// The document.
pub(super) struct Document;

impl Reply for Document {
    const MEDIA: &'static [Media] = &[("application/json", None)];
    async fn respond(self, _: &Shared, _: &Payer) -> Result<Response, Problem> {
        Ok(([(header::CONTENT_TYPE, "application/json")], text()).into_response())
    }
}

pub(super) async fn document(_: Call) -> Result<Document, Problem> {
    Ok(Document)
}

fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = serde_json::to_string_pretty(&openapi(&table::routes())).unwrap_or_default();
        text.push('\n');
        text
    })
}

/// Two generators: in what comes in, fields that have a default may be left out; in what goes out they are there.
struct Schemas {
    coming: SchemaGenerator,
    going: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = |contract| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings.contract = contract;
            settings.into_generator()
        };
        Self { coming: settings(Contract::Deserialize), going: settings(Contract::Serialize) }
    }

    fn into_definitions(mut self) -> Map<String, Value> {
        let mut all = self.coming.take_definitions(true);
        for (name, schema) in self.going.take_definitions(true) {
            let before = all.insert(name.clone(), schema.clone());
            let is_same = before.is_none_or(|before| before == schema);
            assert!(is_same, "{name} differs between coming in and going out: give one of them another name");
        }
        all
    }
}

/// An integer has an end: the generator names the format only.
fn bound_integers(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(bound_integers),
        Value::Object(fields) => {
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("uint64" | "uint") => Some(json!(u64::MAX)),
                Some("uint32") => Some(json!(u32::MAX)),
                Some("int64") => Some(json!(i64::MAX)),
                Some("int32") => Some(json!(i32::MAX)),
                _ => None,
            };
            fields.extend(most.map(|most| ("maximum".to_owned(), most)));
            fields.values_mut().for_each(bound_integers);
        }
        _ => {}
    }
}

fn media(generator: &mut SchemaGenerator, all: &[Media]) -> Map<String, Value> {
    let one = |(media, describe): &Media| {
        let schema = match describe {
            Some(describe) => describe(generator).to_value(),
            // Bytes or text, which another document describes.
            None if media.starts_with("text/") => json!({"type": "string"}),
            None => json!({}),
        };
        ((*media).to_owned(), json!({"schema": schema}))
    };
    all.iter().map(one).collect()
}

/// The fields of a query as parameters.
fn parameters(schemas: &mut Schemas, route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    if let Some(part) = route.part {
        let name = route.path.split(['{', '}']).nth(1).unwrap_or_default();
        let schema = part(&mut schemas.coming).to_value();
        all.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }
    for (name, mut schema) in query_fields(route) {
        let described = schema.as_object_mut().and_then(|s| s.remove("description"));
        // What is absent is absent: there is no null in a query.
        if let Some(Value::Array(types)) = schema.get("type").cloned() {
            let kept: Vec<Value> = types.into_iter().filter(|t| t != "null").collect();
            schema["type"] = kept.into_iter().next().unwrap_or_default();
        }
        all.push(json!({"name": name, "in": "query", "schema": schema, "description": described}));
    }
    all
}

fn query_fields(route: &Route) -> Map<String, Value> {
    let mut generator = Schemas::new().coming;
    let _ = (route.query)(&mut generator);
    let mut definitions = generator.take_definitions(true);
    // A query is one flat type, or none.
    let fields = definitions.values_mut().next().and_then(|query| query.get_mut("properties"));
    fields.and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default()
}

/// Answers that many routes give, by status and name.
const COMMON: [(u16, &str, &str); 9] = [
    (400, "BadRequest", "the request cannot be understood, or is refused"),
    (401, "NoCredential", "there is no token, or it is not good"),
    (403, "Forbidden", "the caller may not"),
    (404, "NoSuchPath", "there is no such path"),
    (408, "TooSlow", "the request took longer than two minutes"),
    (413, "TooLarge", "the body is longer than a request's may be: 1 MiB, of a submit 64 MiB"),
    (415, "BadMediaType", "the body is of another media type"),
    (429, "TooMany", "a budget of the caller is used up; the message names it"),
    (503, "Unavailable", "nothing can be recorded at the moment, or the manager is stopping"),
];

fn problem(status: u16, when: &str) -> Value {
    let mut answer = json!({
        "description": when,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReply"}}},
    });
    match status {
        401 => answer["headers"] = json!({"WWW-Authenticate": {"schema": {"type": "string"}}}),
        429 => {
            let seconds = json!({"schema": {"type": "integer"}, "description": "seconds; absent for quotas"});
            answer["headers"] = json!({"Retry-After": seconds});
        }
        _ => {}
    }
    answer
}

/// Answers other than what was asked for.
fn refusals(route: &Route) -> Map<String, Value> {
    let mut all = Map::new();
    for (status, name, _) in COMMON {
        let applies = match status {
            404 => route.part.is_some(),
            413 | 415 => !route.takes.is_empty(),
            _ => true,
        };
        if applies {
            all.insert(status.to_string(), json!({"$ref": format!("#/components/responses/{name}")}));
        }
    }
    for (status, when) in route.refusals {
        all.insert(status.to_string(), problem(*status, when));
    }
    all
}

fn operation(schemas: &mut Schemas, route: &Route) -> Value {
    let (status, gives) = route.gives;
    let mut responses = Map::new();
    let mut good = json!({"description": "it is so"});
    if !gives.is_empty() {
        good["content"] = media(&mut schemas.going, gives).into();
    }
    responses.insert(status.as_u16().to_string(), good);
    responses.extend(refusals(route));
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": format!("Needs: {}.", route.needs.role()),
        "description": route.says,
        "responses": responses,
        "security": match route.needs {
            Needs::Right(Action::Health | Action::Join) => json!([]),
            _ => json!([{"token": []}]),
        },
    });
    let parameters = parameters(schemas, route);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !route.takes.is_empty() {
        let content = media(&mut schemas.coming, route.takes);
        operation["requestBody"] = json!({"required": true, "content": content});
        operation["x-body-bytes"] = route.body_bytes.into();
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let words = route.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty() && *word != "v1");
    let words: Vec<&str> = words.collect();
    format!("{}_{}", route.verb.name().to_ascii_lowercase(), words.join("_"))
}

fn openapi(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes.iter().filter(|route| route.is_rest) {
        let operation = operation(&mut schemas, route);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.name().to_ascii_lowercase()] = operation;
    }
    let _ = schemas.going.subschema_for::<api::rest::ErrorReply>();
    let responses: Map<String, Value> =
        COMMON.iter().map(|(status, name, when)| ((*name).to_owned(), problem(*status, when))).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Updraft",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of a manager; see docs/api.md.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "responses": responses,
            "schemas": schemas.into_definitions(),
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "`updraft token create`. At the Unix socket nobody needs one.",
            }},
        },
    });
    bound_integers(&mut document);
    document
}

/// The list of routes for people.
#[cfg(test)]
fn list(routes: &[Route]) -> String {
    use std::fmt::Write as _;
    let mut text = "| method, path | role | what |\n|---|---|---|\n".to_owned();
    for route in routes {
        let fields: Vec<String> = query_fields(route).keys().map(|name| format!("{name}=")).collect();
        let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
        let (verb, path, role, says) = (route.verb.name(), route.path, route.needs.role(), route.says);
        let _ = writeln!(text, "| `{verb} {path}{query}` | {role} | {says} |");
    }
    let (path, needs, says) = table::SESSION;
    let _ = writeln!(text, "| `POST {path}` | {} | {says} |", needs.role());
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Compares a document with what it should be, or writes it.
    fn compare(name: &str, change: impl FnOnce(&str) -> String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let is = std::fs::read_to_string(&path).unwrap_or_default();
        let should = change(&is);
        if std::env::var_os("UPDRAFT_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::write(&path, should).unwrap();
        } else {
            assert!(
                is == should,
                "docs/{name} is not what the table of routes says; write it with\n  UPDRAFT_BLESS=1 cargo test -p manager openapi"
            );
        }
    }

    #[test]
    fn the_committed_openapi_document_is_the_table_of_routes() {
        compare("openapi.json", |_| text().to_owned());
    }

    #[test]
    fn the_list_in_the_documentation_is_the_table_of_routes() {
        compare("api.md", |is| {
            let (begin, end) =
                ("<!-- routes: made from crates/manager/src/http/table.rs -->\n", "<!-- /routes -->");
            let (before, rest) = is.split_once(begin).expect("the marker where the list begins");
            let (_, after) = rest.split_once(end).expect("the marker where the list ends");
            format!("{before}{begin}{}{end}{after}", list(&table::routes()))
        });
    }

    #[test]
    fn every_operation_says_what_it_needs_and_no_two_are_called_the_same() {
        let routes = table::routes();
        let ids: std::collections::BTreeSet<String> = routes.iter().map(operation_id).collect();
        assert_eq!(ids.len(), routes.len());
        let open: Vec<&str> = routes.iter().filter(|r| r.needs.role() == "anybody").map(|r| r.path).collect();
        assert_eq!(open, ["/v1/openapi.json", "/healthz", "/readyz"], "nothing else is for anybody");
    }
}
