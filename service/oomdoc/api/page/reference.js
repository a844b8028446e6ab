// The HTTP API's reference: Swagger UI over this server's own OpenAPI document.

window.SwaggerUIBundle({ url: "/openapi.json", dom_id: "#reference", deepLinking: true, validatorUrl: null });
