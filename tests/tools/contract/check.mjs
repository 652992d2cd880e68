// Reads a job from standard input, and writes what it finds to standard output, both as JSON.
//
// documents: texts of AsyncAPI documents; the result has what AsyncAPI's parser says of each.
// schemas: JSON schemas, each with `values`; the result has, for each value, its first error or "".
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { readFileSync } from "node:fs";

const job = JSON.parse(readFileSync(0, "utf8"));
const parser = new Parser();
const documents = [];
for (const text of job.documents ?? []) {
  const { diagnostics } = await parser.parse(text);
  documents.push(
    diagnostics.map(({ code, message, path }) => ({ code, message, path: path.join("/") })),
  );
}

const schemas = [];
for (const { schema, values } of job.schemas ?? []) {
  // What a keyword means to one type only may stand beside several types.
  const ajv = new Ajv({ strict: true, strictTypes: false, strictRequired: false });
  addFormats(ajv);
  ajv.addVocabulary(["components"]);
  const validate = ajv.compile(schema);
  schemas.push(
    values.map((value) => {
      if (validate(value)) return "";
      const { instancePath, message } = validate.errors[0];
      return `${instancePath}: ${message}`;
    }),
  );
}
process.stdout.write(JSON.stringify({ documents, schemas }));
