export type * from "./api.js";
export {
  BadAnswer,
  BadKey,
  BadRequest,
  BadWebhook,
  Conflict,
  type ErrorCode,
  Forbidden,
  GreendotError,
  InvalidArgument,
  NotFound,
  Problem,
  RateLimited,
  ServerError,
  Unavailable,
  Unreachable,
} from "./errors.js";
export type { AnswerOf, HttpOptions, RequestOf } from "./http.js";
export { type Audit, type Page, type NotificationOptions, Server, type ServerOptions } from "./server.js";
export type { PrivateKey, TokenOptions } from "./tokens.js";
export { type HookData, type HookDelivery, type HookEvent, type HookHeaders, type HookOptions, verifyWebhook } from "./webhooks.js";
