// Typed client of Chimera's HTTP API.

export { Client, Runs } from "./client.js";
export type { ClientOptions } from "./client.js";
export { ChimeraError } from "./errors.js";
export type { Failure } from "./errors.js";
export type { EventsOptions } from "./events.js";
export type * from "./models.js";
export type * from "./resources.js";
export type { Retry } from "./retry.js";
export type { Platform } from "./session.js";
